"""A model and data in; whether it fits an int4 chip, what it costs there and what accuracy it loses out."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metalforge.core import SpecError, naming, require_not_negative
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.inputs import Given, loaded
from metalforge.hybrid.routing.encodings import LADDER, encoding_of
from metalforge.hybrid.routing.plan import OpPlan
from metalforge.hybrid.routing.router import PINNED_HOST
from metalforge.reservoir import EsnWeights
from metalforge.substrates import PROFILES, Program

from .data import Options
from .report import Evaluation, Figure, Kept, PrecisionRow, Scorer
from .subjects import ON_HOST, Answers, GraphSubject, NetworkSubject, OpenedModel, Subject, Trial, host_plan, open_model

DEFAULT_TOLERANCE = 0.01
"""A point of accuracy, or a hundredth of the targets' standard deviation."""


def evaluate(
    model: Any,
    inputs: Given | str | os.PathLike[str],
    targets: Given | str | os.PathLike[str],
    *,
    precision: str | Sequence[str] = "all",
    profiles: Sequence[str] | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    held_out: float = 0.5,
    washout: int = 0,
    labels: Sequence[str] | None = None,
    output: str | None = None,
    calibration: Given | str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Return whether a model fits the chip, what it costs there and what accuracy it loses, on the user's data.

    Parameters
    ----------
    model
        The path of an ONNX file, of weights, of a compiled program or of what was deployed; or an `EsnWeights`, a
        fitted estimator, an `OpGraph`, a `Plan`, or what `load` gives.
    inputs, targets
        Data that the model was not trained on: arrays, lists of series, or paths of `.npy` and `.npz` files.
    precision
        `all` of the ladder, `auto` (up to the first within the tolerance), or names such as W4A8. A model that was
        deployed is evaluated as it is first; a compiled program only as it is.
    tolerance
        How much accuracy, or NRMSE, may be lost.
    held_out
        Share of the data that scores come from. Ranges are measured, and new readouts fitted, on the rest.
    washout
        Steps at the start of every series that count for nothing.
    labels, output
        Names of the classes in the order of the model's outputs; the output to score, of a model that has several.
    calibration
        Inputs to measure ranges on; all of the data is then held out, and no readout is fitted.
    """
    require_not_negative(tolerance=tolerance)
    opened = open_model(model)
    ladder, until = _ladder(precision, opened)
    chips = list(PROFILES) if profiles is None else list(profiles)
    options = Options(
        held_out=held_out,
        washout=washout,
        labels=opened.labels if labels is None else tuple(labels),
        output=output,
        calibration=None if calibration is None else _data(calibration),
    )
    subject = _subject(opened, inputs, targets, options)
    reference, scorer = subject.software(), subject.scorer
    software = [None if one is None else scorer.score(one) for one in reference]
    rows, apart = [], []
    for name in ladder:
        trial = subject.trial(name, chips)
        apart += [name] * trial.input_on_host
        rows.append(_row(scorer, name, trial, reference, software, tolerance))
        if until and rows[-1].within:
            break
    chosen = next((row.precision for row in rows if row.within), None)
    plan = subject.plan(chosen or rows[-1].precision, chips[0])
    return Evaluation(
        model=_name(model),
        kind=subject.kind,
        measure=scorer.measure,
        unit=subject.unit,
        classes=subject.labels,
        calibrated_on=subject.calibrated_on,
        held_out=subject.held_out,
        software=software[0],
        software_refitted=software[1],
        host=host_plan(plan.graph).record.host_total,
        rows=tuple(rows),
        tolerance=tolerance,
        chosen=chosen,
        ops=tuple(_told(row) for row in plan.record.ops),
        ops_at=f"{chosen or rows[-1].precision} on {chips[0]}",
        ranges=plan.record.ranges,
        notes=(f"W_in stays on the host at {', '.join(apart)}: beside W_res it would cost precision",) if apart else (),
    )


def _told(row: OpPlan) -> OpPlan:
    """Return an op's row with the reason that a reader of the evaluation knows."""
    return msgspec.structs.replace(row, reason=ON_HOST) if row.reason == PINNED_HOST else row


def _subject(opened: OpenedModel, inputs: Any, targets: Any, options: Options) -> Subject:
    """Return the model with its data; errors of a file's data name the file."""
    make: Callable[..., Subject] = NetworkSubject if isinstance(opened.model, EsnWeights) else GraphSubject
    given, wanted = _data(inputs), _data(targets)
    with naming(" and ".join(str(one) for one in (inputs, targets) if isinstance(one, str | os.PathLike)) or "data"):
        return make(opened, given, wanted, options)


def _data(given: Any) -> Any:
    return loaded(given) if isinstance(given, str | os.PathLike) else given


def _ladder(precision: str | Sequence[str], opened: OpenedModel) -> tuple[tuple[str, ...], bool]:
    """Return the precisions to try, and whether to stop at the first that is good enough."""
    if precision in ("all", "auto"):
        own = (opened.precision,) if opened.on_chip is not None else ()
        return own if isinstance(opened.on_chip, Program) else (*own, *LADDER), precision == "auto"
    if isinstance(opened.on_chip, Program):
        raise SpecError("a program has the precision that it was compiled with\nhint: --precision all, or its model")
    names = tuple(precision.split(",")) if isinstance(precision, str) else tuple(precision)
    for name in names:
        encoding_of(name)
    if not names or len(set(names)) != len(names):
        raise SpecError(f"precisions must be all, auto, or different names such as W4A8. Got {', '.join(names)}")
    return names, False


def _row(
    scorer: Scorer,
    precision: str,
    trial: Trial,
    reference: Answers,
    software: Sequence[Figure | None],
    tolerance: float,
) -> PrecisionRow:
    """Return a precision's scores beside those in software.

    It is within the tolerance where the better readout on the chip loses no more against the better one in software.
    """
    kept: list[Kept | None] = [None, None]
    reason, within = "", False
    if trial.answers is None:
        reason = next((one.reason for one in trial.on if one.reason), "no op maps to the NPU")
    else:
        for i, (before, after) in enumerate(zip(reference, trial.answers, strict=True)):
            if before is not None and after is not None:
                kept[i] = Kept(score=scorer.score(after), lost=scorer.lost(before, after))
        sign = -1.0 if scorer.classes else 1.0
        if here := [sign * one.score.value for one in kept if one is not None]:
            best = min(sign * one.value for one in software if one is not None)
            within = float(np.round(min(here) - best, 12)) <= tolerance  # shares of n differ by rounding
        else:
            reason = "it was deployed without a readout"
    return PrecisionRow(
        precision=precision,
        chip_rows=trial.chip_rows,
        as_is=kept[0],
        refitted=kept[1],
        on=trial.on,
        within=within,
        reason=reason,
    )


def _name(model: Any) -> str:
    if isinstance(model, str | os.PathLike):
        return Path(model).name
    return model.name if isinstance(model, OpGraph) else type(model).__name__
