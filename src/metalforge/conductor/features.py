"""What a conductor sees of a chain: named numbers per frame, the same for a corpus and for a campaign.

A `FrameMaker` takes the columns that a run or a journal has, in pieces of any length, and gives frames: one for
`SWEEPS` sweeps, one for each trajectory. The schema `metalforge-features-2` (`data/features.toml`) names the features
with unit, offset and scale; weights carry it, and other features are refused.

Numbers are made so that they mean the same on every lattice and for every algorithm:

    z = (P - P^(beta)) / sigma,  sigma = s(beta) V^(-1/2)      the plaquette (`curves.py`)
    l = |L| N_s^(3/2)                                           the loop
    x = asinh((beta - b0) / width)                              the coupling from the transition (`curves.py`)

P^, b0 and x are of Wilson's action without sea quarks; for other chains z counts from its own running mean, x is not
known, and `has_scale` is 0. Averages are exponential filters, `FAST` and `SLOW`. What is not known is 0 after scaling.

A frame of sweeps has the configurations up to its last row. A frame of a trajectory has what is known at a quarter of
its steps: the configuration it starts from, and outcomes of the one before it, so that heads may say how it will end.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Literal, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, FeatureSchema, Phase, SpecError

from .curves import plaquette_of, scaled_coupling, spatial_extent, transition_on

SCHEMA = msgspec.toml.decode(files(__package__).joinpath("data/features.toml").read_bytes(), type=FeatureSchema)
"""The features, in the order of a network's inputs."""
LARGEST = 5.0
"""Scaled features are bounded by it: a plaquette a thousand deviations off says no more than one of some hundred, and
would make every other input vanish on a chip whose lines have one range."""
SWEEPS = 16
"""Sweeps of a frame: about half an autocorrelation time of the loop near a transition."""
FAST, SLOW = 1 / 4, 1 / 16
"""Weights of the newest frame in the two filters."""
_RATES = np.array([[FAST], [SLOW]])
SEEN = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")
OF_TRAJECTORIES = ("delta_h", "delta_h_quarter", "accepted", "n_steps", "cg_iterations")
"""Columns that frames are made of, named as in a journal."""
NO_LESS = 1e-3
"""Under a logarithm: a loop, an energy error or a variance below it is as good as none."""


class ChainContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is fixed for a chain: its equilibrium and its way there; `mass` and `flavors` are 0 without sea quarks."""

    beta: float
    dims: tuple[int, int, int, int]
    mass: float = 0.0
    flavors: int = 0
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    """Sweeps, or trajectories (of `tau`) with or without quarks."""
    start: Literal["hot", "cold"] = "hot"
    tau: float = 1.0
    action: str = "wilson"

    @property
    def volume(self) -> float:
        """Sites."""
        return float(np.prod(self.dims))

    @property
    def n_s(self) -> float:
        """The spatial extent."""
        return spatial_extent(self.dims)

    @property
    def aspect(self) -> float:
        """N_s / N_t."""
        return self.n_s / self.dims[3]

    @property
    def of_sweeps(self) -> Self:
        """Return the chain of sweeps, without quarks, that has this start."""
        return type(self)(beta=self.beta, dims=self.dims, start=self.start, action=self.action)

    @property
    def has_scale(self) -> bool:
        """Whether plaquette and transition are those of the curves: Wilson's action without sea quarks."""
        return not self.flavors and self.action == "wilson"


class Frames(NamedTuple):
    """Frames in order: the update that each ends with, counted from 0, and the network's inputs (frames, features)."""

    rows: NDArray[np.int64]
    values: Doubles


class _Filters:
    """Exponential filters, fast and slow: (2, 2 channels), sums of values and of the weights with which they count."""

    def __init__(self, channels: int) -> None:
        self._sums = np.zeros((2, 2 * channels))

    def over(self, values: Doubles) -> Doubles:
        """Take rows of values (NaN: not known), and return the means after each: (rows + 1, 2, channels).

        The first are those before all rows. One row after the other, so that cutting rows into blocks changes no bit.
        """
        channels = values.shape[1]
        counted = np.empty((len(values), 1, 2 * channels))
        counted[:, 0, channels:] = np.isfinite(values)
        counted[:, 0, :channels] = np.where(np.isfinite(values), values, 0.0)
        share = _RATES * np.tile(counted[:, :, channels:], 2)
        kept, added = 1.0 - share, share * counted
        sums = np.empty((len(values) + 1, *self._sums.shape))
        sums[0] = last = self._sums
        for keep, add, after in zip(kept, added, sums[1:], strict=True):
            np.multiply(last, keep, out=after)
            last = np.add(after, add, out=after)
        self._sums = sums[-1].copy()
        means, weights = sums[:, :, :channels], sums[:, :, channels:]
        with np.errstate(invalid="ignore"):  # nothing was known: 0 / 0
            return means / weights


class FrameMaker:
    """Makes the frames of one chain from its first update on."""

    def __init__(self, context: ChainContext) -> None:
        self.context = context
        self._trajectories = context.algorithm == "hmc"
        self._plaquette = plaquette_of(context.beta)
        self._sigma = self._plaquette.deviation / context.volume**0.5
        self._loop_unit, self._step_unit = context.n_s**1.5, context.tau * context.volume**0.25
        self._fixed = _fixed(context)
        self.count = 0
        """Updates taken."""
        start = float(context.start == "cold")
        first = np.array([[start, start, start, 0.0, *(np.nan for _ in OF_TRAJECTORIES), 0.0]])
        # Rows that are in no frame yet: of sweeps fewer than a frame has, of trajectories the last.
        self._waiting = first if self._trajectories else first[:0]
        self._base, self._moves = _Filters(9), _Filters(6)
        self._away = np.zeros(2)  # how far z and l of the last frame were from their slow means

    def push(self, phase: Phase, columns: Mapping[str, Sequence[float]]) -> Frames:
        """Take the next updates, by column as a run has them, and return the frames that they complete."""
        rows = self._rows(phase, columns)
        before, self.count = self.count, self.count + len(rows)
        joined = np.concatenate([self._waiting, rows])
        if self._trajectories:
            k, self._waiting = len(rows), joined[-1:].copy()
            looked, now = joined[:-1][:, None], rows
            numbers = made = np.arange(before, self.count)
        else:
            k = len(joined) // SWEEPS
            numbers = before - len(self._waiting) + SWEEPS * np.arange(1, k + 1) - 1
            made = numbers + 1
            self._waiting = joined[k * SWEEPS :].copy()
            looked = joined[: k * SWEEPS].reshape(k, SWEEPS, rows.shape[1])
            now = looked[:, -1]
        if not k:
            return Frames(np.empty(0, np.int64), np.empty((0, len(SCHEMA))))
        found = self._values(looked, now, made.astype(np.float64))
        seen_by = SCHEMA.scaled(np.column_stack([np.broadcast_to(found[one.name], k) for one in SCHEMA.features]))
        values = np.where(np.isfinite(seen_by), seen_by, 0.0)
        return Frames(numbers.astype(np.int64), np.clip(values, -LARGEST, LARGEST, out=values))

    def _rows(self, phase: Phase, columns: Mapping[str, Sequence[float]]) -> Doubles:
        """Return updates as rows: what was seen, what a trajectory has, and whether it was a quench."""
        if missing := [name for name in SEEN if name not in columns]:
            raise SpecError(f"frames are made of {', '.join(SEEN)}. Got no {', '.join(missing)}")
        count = len(columns["plaquette"])
        rows = np.full((count, len(SEEN) + len(OF_TRAJECTORIES) + 1), np.nan)
        for i, name in enumerate(SEEN):
            # What is no number is as far off as can be, once: it must not stay in the filters.
            values = np.asarray(columns[name], np.float64)
            rows[:, i] = np.where(np.isnan(values), 0.0, np.minimum(np.maximum(values, -1.0), 1.0))
        quench = phase == "quench"
        if self._trajectories and not quench:
            for i, name in enumerate(OF_TRAJECTORIES, len(SEEN)):
                if name in columns:
                    rows[:, i] = np.clip(np.asarray(columns[name], np.float64), -1e6, 1e6)
        rows[:, -1] = float(quench)
        return rows

    def _values(self, looked: Doubles, now: Doubles, made: Doubles) -> Mapping[str, Doubles]:
        """Return the features of frames by name.

        `looked` are the rows of each frame, `now` the one it is named after, `made` the updates so far.
        """
        context = self.context
        plaquette, spatial, re, im = (looked[:, :, i] for i in range(4))
        size = np.sqrt(re * re + im * im)
        both = np.stack([(plaquette - self._plaquette.mean) / self._sigma, size * self._loop_unit], axis=-1)
        mean = both.mean(axis=1)
        square = (both * both).mean(axis=1)
        skew = (2 * (plaquette - spatial) / self._sigma).mean(axis=1)
        before = looked[:, -1]
        delta_h, quarter, accepted, n_steps, cg = (before[:, 4], now[:, 5], before[:, 6], now[:, 7], before[:, 8])
        log_cg = np.where(cg > 0, np.log(1.0 + np.where(cg > 0, cg, 0.0)), np.nan)
        channels = [mean, square, skew, np.abs(delta_h), accepted, log_cg, log_cg * log_cg]
        means = self._base.over(np.column_stack(channels))
        fast, slow = means[1:, 0], means[1:, 1]
        # Deviations count from what the slow filter was before the frame; a first frame has none.
        about = np.where(np.isfinite(means[:-1, 1, :2]), means[:-1, 1, :2], mean)
        away = mean - about
        earlier = np.concatenate([self._away[None], away[:-1]])
        off = both - about[:, None]
        if looked.shape[1] > 1:
            within = both.var(axis=1)
            by_one = (off[:, 1:] * off[:, :-1]).mean(axis=1)
        else:
            within = np.full_like(mean, np.nan)
            by_one = away * earlier
        moved = self._moves.over(np.column_stack([(off * off).mean(axis=1), by_one, away * away]))
        self._away = away[-1].copy()
        spread, pairs, between = (moved[1:, 1, i : i + 2] for i in (0, 2, 4))
        lag = np.divide(pairs, spread, out=np.zeros_like(pairs), where=spread > 0)
        bounded = np.clip(lag, 0.0, 0.99)
        tau = (1 + bounded) / (2 * (1 - bounded))
        cube = size * size * size
        sector = np.divide(re * (re * re - 3 * im * im), cube, out=np.zeros_like(cube), where=cube > 0).mean(axis=1)
        z = mean[:, 0] if context.has_scale else away[:, 0]
        is_trajectory = np.isfinite(n_steps)
        variance = slow[:, 2:4] - slow[:, :2] * slow[:, :2]
        cg_variance = slow[:, 8] - slow[:, 7] * slow[:, 7]
        return self._fixed | {
            "log_updates": np.log(1.0 + made),
            "log_time": np.log(1.0 + made / tau[:, 1]),
            "is_quench": now[:, -1],
            "z": _asinh(z),
            "shift": z * self._sigma / self._plaquette.slope if context.has_scale else np.full(len(z), np.nan),
            "z_slope": _asinh(fast[:, 0] - slow[:, 0]),
            "z_within": _log_of(within[:, 0]),
            "z_between": _log_of(between[:, 0]),
            "z_variance": _log_of(variance[:, 0]),
            "z_lag": lag[:, 0],
            "asymmetry": _asinh(skew),
            "asymmetry_slow": _asinh(slow[:, 4]),
            "loop": _log_of(mean[:, 1]),
            "loop_slow": _log_of(slow[:, 1]),
            "loop_slope": _asinh(fast[:, 1] - slow[:, 1]),
            "loop_within": _log_of(within[:, 1]),
            "loop_between": _log_of(between[:, 1]),
            "loop_variance": _log_of(variance[:, 1]),
            "loop_lag": lag[:, 1],
            "log_tau": np.log(tau[:, 1]),
            "sector": sector,
            "delta_h_before": _asinh(delta_h),
            "delta_h_quarter": _asinh(quarter),
            "accepted_before": accepted,
            "step": self._step_unit / np.where(is_trajectory & (n_steps > 0), n_steps, np.nan),
            "acceptance": slow[:, 6],
            "delta_h_size": _log_of(slow[:, 5]),
            "cg_before": log_cg,
            "cg_slow": slow[:, 7],
            "cg_spread": np.sqrt(np.where(cg_variance > 0, cg_variance, 0.0 * cg_variance)),
            "has_hmc": is_trajectory.astype(np.float64),
            "has_quarter": np.isfinite(quarter).astype(np.float64),
            "has_cg": np.isfinite(log_cg).astype(np.float64),
        }


def _fixed(context: ChainContext) -> dict[str, Doubles]:
    """Return the features that a chain has from the beginning; NaN where something is not known of it."""
    there = transition_on(context.dims)
    fixed = {
        "log_nt": np.log(context.dims[3]),
        "aspect": context.aspect,
        "is_hmc": float(context.algorithm == "hmc"),
        "is_cold": float(context.start == "cold"),
        "flavors": float(context.flavors),
        "mass": context.mass,
        "sea_beta": np.nan if context.has_scale else context.beta,
        "distance": context.beta - there.mean if context.has_scale else np.nan,
        "x": scaled_coupling(context.beta, there) if context.has_scale else np.nan,
        "has_scale": float(context.has_scale),
    }
    return {name: np.array(value, np.float64) for name, value in fixed.items()}


def _log_of(values: Doubles) -> Doubles:
    """Return the logarithm of what is not negative, from `NO_LESS` on; NaN stays."""
    return np.asarray(np.log(np.maximum(values, NO_LESS)))


def _asinh(values: Doubles) -> Doubles:
    """Return what grows as the value near 0 and as its logarithm far from it."""
    size = np.abs(values)
    return np.asarray(np.copysign(np.log(size + np.sqrt(size * size + 1.0)), values))
