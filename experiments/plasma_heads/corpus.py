"""Runs of the plasma: the first part of each as a window, and the results of the segments of the whole run.

A file has `/runs/N` with (`corpora` has the rest)

    window      float32 (COLUMNS, frames): the first part of run N
    segments    float64 (segments, 2 + bins): temperature, D_N of displacements, power of the stress
    shuffled    as `window`, of the same frames in a random order: a control, which some runs have

Sums over particles are kept as float32, all else rounded to 12 bits, far below its noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.corpora import Floats, Part, RecordedCorpus
from metalforge.conductor.plasma.frames import COLUMNS, ENERGIES
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.native.engine import Precision
from metalforge.plasma.references import melting_gamma
from metalforge.plasma.spec import PlasmaSpec
from metalforge.plasma.transport import Transport, TransportSegment, transport

BITS = 12
"""Of the mantissa of columns that are not sums over all particles."""


class PlasmaEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes one run: a state point, a box, a stream, and its times in 1 / omega_p."""

    part: Part
    gamma: float
    kappa: float
    particles: int
    seed: int
    stream: int
    warmup: float
    window: float
    """What heads see, the first part of `time`."""
    time: float
    precision: Precision = "f64"
    """Of pair forces; all else is in doubles."""
    shuffled: bool = False
    """Whether the window is kept with its frames in a random order, too."""

    @property
    def spec(self) -> PlasmaSpec:
        """The run's own."""
        return PlasmaSpec(
            gamma=self.gamma,
            kappa=self.kappa,
            particles=self.particles,
            seed=self.seed,
            stream=self.stream,
            precision=self.precision,
        )

    @property
    def place(self) -> tuple[float, float]:
        """The state point, the cluster that it is drawn with: kappa and Gamma."""
        return self.kappa, self.gamma

    @property
    def name(self) -> tuple[object, ...]:
        """Identifies the run in a corpus."""
        return self.place, self.particles, self.seed, self.stream

    @property
    def ratio(self) -> float:
        """Gamma / Gamma_m."""
        return self.gamma / melting_gamma(self.kappa)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaRecord:
    """One run: its window, and what each segment of the whole run left."""

    entry: PlasmaEntry
    window: Floats
    segments: Doubles
    shuffled: Floats | None = None
    peers: list["PlasmaRecord"] = field(default_factory=list, repr=False)
    """All runs of its state point and size, itself too: a corpus fills it in."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return window, segments and the shuffled window, where there is one, as files have them."""
        named = {"window": self.window.astype("<f4"), "segments": self.segments.astype("<f8")}
        return named if self.shuffled is None else named | {"shuffled": self.shuffled.astype("<f4")}

    @classmethod
    def read(cls, entry: PlasmaEntry, arrays: Mapping[str, NDArray[Any]]) -> "PlasmaRecord":
        """Return a run from what a file has of it."""
        window, segments, shuffled = (arrays.get(name) for name in ("window", "segments", "shuffled"))
        if window is None or segments is None or window.shape[:1] != (len(COLUMNS),) or segments.ndim != 2:
            raise SpecError(f"the run of stream {entry.stream} has no window of {len(COLUMNS)} columns, or no segments")
        return cls(entry=entry, window=window, segments=segments, shuffled=shuffled)

    def column(self, name: str) -> Doubles:
        """Return one column of the window."""
        return np.asarray(self.window[COLUMNS.index(name)], np.float64)

    @property
    def kept(self) -> list[TransportSegment]:
        """The segments, from the first on. Velocities were not followed beyond the window: that estimate is missing."""
        spec = self.entry.spec
        time = spec.segment_blocks * spec.block_time
        return [
            TransportSegment(
                time=time,
                temperature=float(row[0]),
                diffusion_msd=float(row[1]),
                diffusion_vacf=float("nan"),
                stress_power=tuple(row[2:].tolist()),
            )
            for row in self.segments
        ]

    @cached_property
    def found(self) -> Transport:
        """Transport coefficients of the whole run, with errors."""
        return transport(self.entry.spec, [self.kept])

    @cached_property
    def found_together(self) -> Transport:
        """Transport coefficients of all runs of the state point together, with errors."""
        runs = self.peers or [self]
        return runs[0].found_together if runs[0] is not self else transport(self.entry.spec, [r.kept for r in runs])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaCorpus(RecordedCorpus[PlasmaRecord]):
    """Runs; those of a state point, size and part are made known to each other."""

    FORMAT = ("metalforge-plasma-corpus", "1")
    RECORDS = "runs"
    RECORD, ENTRY = PlasmaRecord, PlasmaEntry

    def __post_init__(self) -> None:
        together: dict[object, list[PlasmaRecord]] = {}
        for run in self.records:
            together.setdefault((run.entry.place, run.entry.particles, run.entry.part), []).append(run)
        for runs in together.values():
            for run in runs:
                run.peers[:] = runs


def rounded(columns: Doubles) -> Floats:
    """Return columns as files keep them."""
    kept = np.asarray(columns, np.float32).copy()
    rest = kept[len(ENERGIES) :]
    mantissa, exponent = np.frexp(rest)
    kept[len(ENERGIES) :] = np.ldexp(np.round(mantissa * (1 << BITS)) / (1 << BITS), exponent)
    return kept
