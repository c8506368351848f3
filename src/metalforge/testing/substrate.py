"""The contract of a substrate plug-in, as assertions."""

import math

import msgspec
import numpy as np

from metalforge.core import (
    EnergyMeter,
    Measured,
    MeterUnavailableError,
    Modelled,
    PlacementError,
    Substrate,
    capability_from_label,
    missing_capabilities,
)
from metalforge.substrates import WORKLOADS

__all__ = ["check_substrate"]


def check_substrate(substrate: Substrate) -> None:
    """Raise `AssertionError` with the rule that `substrate` breaks; return when it keeps all of them."""
    _rule(isinstance(substrate, Substrate), "it must have info, cost(), meter() and open_engine()")
    info = substrate.info
    _rule(len(info.name.split()) == 1, f"info.name must be one word, it is used on the command line: {info.name!r}")
    _rule(bool(info.capabilities), "it must have at least one capability")
    for capability in info.capabilities:
        _rule(
            capability_from_label(capability.label) == capability,
            f"the label of {capability} must read back as the same capability",
        )
    _rule(substrate.info == info, "info must not change between two looks")
    record = msgspec.json.decode(msgspec.json.encode(info.record()))
    _rule(record["name"] == info.name, "info must survive JSON")

    for workload in WORKLOADS.values():
        if missing_capabilities(info.capabilities, workload.needs):
            continue
        cost = substrate.cost(workload)
        for what, quantity in (("latency", cost.latency), ("energy", cost.energy)):
            if quantity is None:
                _rule(bool(cost.unknown), f"a cost without {what} must say why in `unknown` ({workload.name})")
            else:
                _rule(isinstance(quantity, Measured | Modelled), f"{what} must be Measured or Modelled")
                _rule(
                    math.isfinite(quantity.value) and quantity.value > 0, f"{what} must be positive ({workload.name})"
                )

    _check_engine(substrate)
    meter = substrate.meter()
    _rule(isinstance(meter, EnergyMeter), "meter() must return an EnergyMeter")
    if meter.unavailable() is None:
        first, second = meter.total(), meter.total()
        _rule(type(first) is type(second) and first.unit == "J", "a meter must read joules of one kind")
        _rule(second.value >= first.value >= 0, "a meter must not run backwards")
    else:
        try:
            meter.total()
        except MeterUnavailableError:
            return
        raise AssertionError("a meter that is unavailable must raise MeterUnavailableError when read")


def _check_engine(substrate: Substrate) -> None:
    try:
        engine = substrate.open_engine()
    except PlacementError as error:
        _rule(substrate.info.name in str(error), "open_engine() must name the substrate that has no engine")
        return
    _rule(all(isinstance(part, str) and part for part in (engine.name, engine.family)), "an engine has name and family")
    grid = engine.grid((2, 2, 2, 2), "f64")
    links = grid.download("links", grid.new("links"))
    _rule(bool((links == np.eye(3)).all()) and links.shape[:4] == (2, 2, 2, 2), "new links must be unit matrices")


def _rule(kept: bool, rule: str) -> None:
    if not kept:
        raise AssertionError(rule)
