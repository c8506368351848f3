"""What a conductor sees of a chain: fifty named numbers a trajectory, the same in training and when it runs.

The schema `metalforge-features-1` (`data/features-1.toml`) names them with unit, offset and scale; weights carry it,
and other features are refused. A frame is made from what is known when a trajectory has ended, or is about to start: no
quantity that defines a label is among them. The Polyakov loop, which phase and order parameter are read from, is not;
the outcome of the Metropolis test and the iterations of a solve appear one trajectory later, as `..._before`; dH at a
quarter of the steps is known before the outcome it helps to predict.

What is not known is 0 after scaling, and a flag says so.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError, require_known
from metalforge.core.phases import Phase
from metalforge.core.schema import FeatureSchema

if TYPE_CHECKING:
    from .features import ChainContext

Frame: TypeAlias = dict[str, float]
FLAGS: dict[str, Phase] = {"is_quenched": "quench", "is_warmup": "warmup", "is_measure": "measure"}
SHORT, LONG = 8, 32
"""Trajectories in the two windows."""
LARGEST = 5.0
"""Scaled features are bounded by it: an energy error of a thousand says no more than one of five,
and would make every other input vanish on a chip whose lines have one range."""


class MetaRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an earlier run found at a coupling."""

    beta: float
    plaquette: float
    susceptibility: float


class ObservedUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update of a chain as an observer saw it; None where the algorithm has no such number.

    `delta_h_quarter` is the energy error at a quarter of the steps. The plaquettes are those of the configuration that
    the trajectory starts from: after the Metropolis test an unchanged plaquette would tell its outcome.
    """

    phase: Phase
    plaquette_spatial: float
    plaquette_temporal: float
    delta_h: float | None = None
    delta_h_quarter: float | None = None
    accepted: bool | None = None
    step_size: float | None = None
    n_steps: int | None = None
    cg_iterations: float | None = None
    """Mean iterations a solve."""
    residual_rate: float | None = None
    """log10 of the residual's decrease an iteration."""

    @property
    def plaquette(self) -> float:
        """The mean of both."""
        return (self.plaquette_spatial + self.plaquette_temporal) / 2


FEATURES = msgspec.toml.decode(files(__package__).joinpath("data/features-1.toml").read_bytes(), type=FeatureSchema)
"""The fifty features, in the order of a network's inputs."""


def scaled(frame: Mapping[str, float], schema: FeatureSchema = FEATURES) -> NDArray[np.float64]:
    """Return a frame as a network's input: (value - offset) / scale in the schema's order, within +-`LARGEST`.

    What is not known is 0.
    """
    names, offsets, scales = _SCALING if schema is FEATURES else _columns(schema)
    for name, value in frame.items():
        require_known(f"feature of {schema.name}", name, names)
        if not isfinite(value):
            raise SpecError(f"feature `{name}` must be a finite number. Got {value}")
    values = (np.array([frame.get(name, np.nan) for name in names]) - offsets) / scales
    values[np.isnan(values)] = 0.0
    return np.clip(values, -LARGEST, LARGEST, out=values)


def _columns(schema: FeatureSchema) -> tuple[dict[str, None], NDArray[np.float64], NDArray[np.float64]]:
    """Return the names, in order and quick to look up, with offsets and scales."""
    offsets, scales = np.array([(float(f.offset), float(f.scale)) for f in schema.features]).T
    return dict.fromkeys(f.name for f in schema.features), offsets, scales


_SCALING = _columns(FEATURES)


class FrameBuilder:
    """Makes the frames of one chain, in the order of its trajectories."""

    def __init__(self, context: "ChainContext", meta: Sequence[MetaRow] = ()) -> None:
        self._context = context
        self._fixed = _context_frame(context) | _meta_frame(context.beta, meta)
        self._seen: deque[ObservedUpdate] = deque(maxlen=LONG)
        self._count = 0
        self._windows: Frame = {}
        """Statistics of what was seen; empty until they are asked for again."""

    def before(self, phase: Phase) -> Frame:
        """Return the context frame: what is known before a run of this phase."""
        flags = {name: float(phase == flagged) for name, flagged in FLAGS.items()}
        self._windows = self._windows or self._window()
        return self._fixed | flags | {"log_index": float(np.log1p(self._count))} | self._windows

    def push(self, trajectory: ObservedUpdate) -> Frame:
        """Return the frame at the end of a trajectory, before its Metropolis test and its solves are taken up.

        What its test and solves gave is in the next frame.
        """
        frame = self.midway(trajectory)
        self._seen.append(trajectory)
        self._count += 1
        self._windows = {}
        return frame

    def midway(self, trajectory: ObservedUpdate) -> Frame:
        """Return the frame that `push` will give for this trajectory while it still runs; nothing is taken up.

        From a quarter of its steps on the two are the same: no frame has the outcome of its own trajectory.
        """
        previous = self._seen[-1] if self._seen else None
        now = {
            "plaquette": trajectory.plaquette,
            "plaquette_spatial": trajectory.plaquette_spatial,
            "plaquette_temporal": trajectory.plaquette_temporal,
            "asymmetry": trajectory.plaquette_temporal - trajectory.plaquette_spatial,
            **_known(
                delta_h_quarter=trajectory.delta_h_quarter,
                step_size=trajectory.step_size,
                n_steps=trajectory.n_steps,
            ),
        }
        if previous is not None:
            cg = previous.cg_iterations
            now |= _known(
                delta_h_before=previous.delta_h,
                accepted_before=previous.accepted,
                cg_before=cg,
                log_cg_before=None if cg is None else float(np.log1p(cg)),
                residual_rate=previous.residual_rate,
            )
        flags = {
            "has_hmc": float(trajectory.step_size is not None),
            "has_quarter": float(trajectory.delta_h_quarter is not None),
            "has_cg": float(previous is not None and previous.cg_iterations is not None),
        }
        return self.before(trajectory.phase) | now | flags

    def _window(self) -> Frame:
        """Return statistics of the trajectories before this one."""
        frame: Frame = {"filled": len(self._seen) / LONG}
        if len(self._seen) < 2:
            return frame
        plaquette = np.array([t.plaquette for t in self._seen])
        asymmetry = np.array([t.plaquette_temporal - t.plaquette_spatial for t in self._seen])
        half = len(plaquette) // 2
        spread = plaquette.std()
        frame |= _trend("short", plaquette[-SHORT:]) | _trend("long", plaquette)
        frame |= {
            "halves": float(plaquette[half:].mean() - plaquette[:half].mean()),
            "lag_one": _lag_one(plaquette),
            "largest_deviation": float(np.abs(plaquette - plaquette.mean()).max() / spread) if spread else 0.0,
            "asymmetry_mean": float(asymmetry.mean()),
            "asymmetry_std": float(asymmetry.std()),
        }
        errors = [t.delta_h for t in self._seen if t.delta_h is not None]
        tests = [t.accepted for t in self._seen if t.accepted is not None]
        solves = [t.cg_iterations for t in self._seen if t.cg_iterations is not None]
        if errors:
            frame |= {"delta_h_mean": float(np.mean(errors)), "delta_h_std": float(np.std(errors))}
        if tests:
            frame |= {"acceptance_short": float(np.mean(tests[-SHORT:])), "acceptance_long": float(np.mean(tests))}
        if solves:
            frame |= {"cg_mean": float(np.mean(solves)), "cg_std": float(np.std(solves))}
        return frame


def _context_frame(context: "ChainContext") -> Frame:
    n_t = context.dims[3]
    space = float(np.prod(context.dims[:3])) ** (1 / 3)
    return {
        "beta": context.beta,
        "mass": context.mass,
        "log_volume": float(np.log(np.prod(context.dims))),
        "temporal_extent": float(n_t),
        "aspect": space / n_t,
        "flavors": float(context.flavors),
    }


def _meta_frame(beta: float, meta: Sequence[MetaRow]) -> Frame:
    """Return the nearest earlier results on either side; a result at this coupling counts as below."""
    frame: Frame = {"has_meta": float(bool(meta))}
    for side, rows in (("below", [r for r in meta if r.beta <= beta]), ("above", [r for r in meta if r.beta > beta])):
        if rows:
            near = min(rows, key=lambda row: abs(row.beta - beta))
            frame |= {
                f"{side}_distance": abs(near.beta - beta),
                f"{side}_plaquette": near.plaquette,
                f"{side}_susceptibility": near.susceptibility,
            }
    return frame


def _known(**values: float | bool | None) -> Frame:
    return {name: float(value) for name, value in values.items() if value is not None}


def _trend(name: str, values: NDArray[np.float64]) -> Frame:
    """Return mean, spread and slope over the window, the slope as change from end to end."""
    time = np.linspace(-0.5, 0.5, len(values))
    slope = float(time @ (values - values.mean()) / (time @ time))
    return {f"mean_{name}": float(values.mean()), f"std_{name}": float(values.std()), f"slope_{name}": slope}


def _lag_one(values: NDArray[np.float64]) -> float:
    centred = values - values.mean()
    size = float(centred @ centred)
    return float(centred[1:] @ centred[:-1] / size) if size else 0.0
