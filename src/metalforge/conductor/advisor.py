"""The advisor of campaigns: one network reads the rows of every chain, and its heads answer where they are trusted.

Rows of a chain wait until somebody asks for a reading; then frames are made of them (`FrameMaker`), and step the
chain's own state of the network. How rows are cut into blocks changes no bit of a reading, so a campaign that is
resumed, and sends the rows of its journal again, reads the same.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import lru_cache
from math import expm1, hypot
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import (
    PEAK_HEAD,
    Advice,
    ChainPlace,
    CheapLength,
    Closing,
    ExpectedPeak,
    HeadStanding,
    Modelled,
    PeakPlace,
    Question,
    Reading,
    Segment,
)
from metalforge.statistics import with_error

from .curves import peak_of, scaled_coupling, transition_curve
from .features import SWEEPS, ChainContext, FrameMaker
from .program import ConductorProgram
from .shipped import shipped_scores, shipped_weights
from .standing import ON_NPU, SOFTWARE, Heads, heads_for, with_weights

FEWEST = 3
"""Chains with a reading of the peak that an answer takes."""
JUDGED = 2.0
"""Distance of a chain's coupling from the curve's, scaled, within which the head was judged."""
CHEAP_HEAD, CHEAP_LAYOUT = "quenched_length", "gpu-prep-11"
"""The head that predicts cheaper updates from the first frame of a chain of sweeps, and its layout; in software."""
LARGEST = 20.0
"""Limit of a predicted logarithm."""

ContextOf = Callable[[ChainPlace], ChainContext]


class _ChainReader:
    """One chain: its rows that were not read yet, and the state of the network after those that were."""

    def __init__(self, context: ChainContext, rest: NDArray[Any]) -> None:
        self.maker, self.state = FrameMaker(context), rest
        self.waiting: deque[Segment] = deque()
        self.said: dict[str, float] = {}

    def due(self, row: int) -> list[Segment]:
        """Take the segments that end at a row or before it, without rows that were read."""
        found, count = [], self.maker.count
        while self.waiting and _end(self.waiting[0]) <= row + 1:
            segment = self.waiting.popleft()
            if segment.first > count:
                raise ValueError(f"rows from {count} to {segment.first - 1} are missing")
            if (end := _end(segment)) > count:
                columns = {name: values[count - segment.first :] for name, values in segment.columns.items()}
                found.append(Segment(segment.phase, count, columns))
                count = end
        return found


def _end(segment: Segment) -> int:
    return segment.first + len(segment.columns["plaquette"])


class ConductorAdvisor(Closing):
    """The network of `heads` on one `device`, or in software; `context_of` describes a chain to it."""

    def __init__(self, heads: Heads, context_of: ContextOf, *, device: Any = None) -> None:
        self.heads, self.device, self._context_of = heads, device, context_of
        self.emulation_s, self.trouble = 0.0, ""
        self._run = ConductorProgram(heads.weights, device)
        self._rest = np.zeros(heads.weights.units, heads.weights.dtype)
        self._shown = [h.name for h in heads.layout.heads if h.trained and h.available and h.name not in heads.unused]
        self._chains: dict[str, _ChainReader] = {}
        self._lock = Lock()

    @classmethod
    def of(
        cls,
        context_of: ContextOf,
        places: Sequence[ChainPlace],
        *,
        integrator: str = "",
        unused: Mapping[str, str] | None = None,
        profile: str = "",
        weights: Path | None = None,
    ) -> "ConductorAdvisor":
        """Return the advisor of chains at these places, on an emulated device where a `profile` is named."""
        contexts = [context_of(place) for place in places]
        heads = heads_for(contexts, ON_NPU if profile else SOFTWARE, integrator=integrator, unused=unused)
        heads = heads if weights is None else with_weights(heads, weights)
        if not profile:
            return cls(heads, context_of)
        from metalforge.substrates import EmulatedDevice
        from metalforge.substrates import profile as find_profile

        return cls(heads, context_of, device=EmulatedDevice(find_profile(profile)))

    @property
    def standings(self) -> tuple[HeadStanding, ...]:
        """Of every head, for the journal."""
        return self.heads.standings()

    def observe(self, chain: str, segments: Sequence[Segment], place: ChainPlace | None = None) -> None:
        """Take rows of a chain, of which those known before are passed over; never waits."""
        with self._lock:
            if place is not None and chain not in self._chains:
                self._chains[chain] = _ChainReader(self._context_of(place), self._rest)
            if (reader := self._chains.get(chain)) is not None:
                reader.waiting.extend(segments)

    def advise(self, question: Question) -> Advice | None:
        """Answer a question."""
        match question:
            case Reading():
                return self._reading(question)
            case PeakPlace():
                return self._peak(question)
            case CheapLength():
                return self._cheap(question)

    def close(self) -> None:
        """Take the programs off the device, and give it back."""
        with nullcontext() if self.device is None else closing(self.device):
            self._run.close()

    def _reading(self, asked: Reading) -> Advice | None:
        """Return the values of all heads after the last frame at or before a row; None before the first frame.

        A chain that cannot be read has no readings until its rows come again from the first on.
        """
        with self._lock:
            reader = self._chains.get(asked.chain)
        if reader is None:
            return None
        ledger = getattr(self.device, "ledger", None)
        before, began = None if ledger is None else ledger.spent(), time.thread_time()
        try:
            self._step(reader, asked.row)
        except Exception as error:
            self.trouble = f"{asked.chain} is not read any more: {type(error).__name__}: {error}"
            del self._chains[asked.chain]
            return None
        if ledger is None or before is None:
            return Advice(readings=reader.said)
        self.emulation_s += time.thread_time() - began
        after, profile = ledger.spent(), self.device.profile.name
        busy, energy = (
            Modelled(value=now - then, unit=unit, profile=profile)
            for now, then, unit in zip(after, before, ("s", "J"), strict=True)
        )
        return Advice(readings=reader.said, busy=busy, energy=energy)

    def _step(self, reader: _ChainReader, row: int) -> None:
        with self._lock:
            due = reader.due(row)
        for segment in due:
            frames = reader.maker.push(segment.phase, segment.columns)
            if len(frames.rows):
                self._run.state = reader.state
                said = self._run.through(frames.values).at(-1)
                reader.state = self._run.state
                reader.said = {name: float(said[name][-1]) for name in self._shown}

    def _peak(self, asked: PeakPlace) -> Advice | None:
        """Weigh the readings of the chains near the expected peak with the curve."""
        curve = asked.expected
        if not self.heads.acts(PEAK_HEAD):
            return None
        near = [c for c in asked.chains if c.screened and abs(scaled_coupling(c.coordinate, curve)) <= JUDGED]
        said = [c.screened[-1].heads for c in near]
        read = [peak_of(heads[PEAK_HEAD], curve) for heads in said if PEAK_HEAD in heads]
        if len(read) < FEWEST:
            return None
        mean, error = combined(read, self.heads.scores[PEAK_HEAD].value * transition_curve().unit, curve)
        reason = f"{len(read)} chains read {with_error(float(np.mean(read)), float(np.std(read)))} on average"
        reason += f", with the curve's {with_error(curve.mean, curve.error)}"
        return Advice(head=PEAK_HEAD, value=mean, error=error, baseline=curve.mean, trusted=True, reason=reason)

    def _cheap(self, asked: CheapLength) -> Advice | None:
        """Predict the cheaper updates from the first frame of the nearest chain."""
        alike = [c for c in asked.chains if min(c.cheap, c.rows) >= SWEEPS]
        nearest = min(alike, key=lambda c: (abs(c.coordinate - asked.place.coordinate), c.id), default=None)
        if nearest is None:
            return None
        context = self._context_of(asked.place._replace(coordinate=nearest.coordinate, start=nearest.start)).of_sweeps
        scores = shipped_scores(CHEAP_LAYOUT)
        if not any(kind.lacks(context) is None and CHEAP_HEAD in kind.heads for kind in scores.tested_on):
            return None
        rows = {name: tuple(column[:SWEEPS]) for name, column in nearest.columns.items()}
        updates = expm1(min(_first_frame(context, tuple(sorted(rows.items()))), LARGEST))
        return Advice(
            head=CHEAP_HEAD,
            value=float(min(max(round(updates), 1), asked.most)),
            baseline=float(asked.usual),
            trusted=any(s.trusted for s in scores.heads if (s.name, s.route) == (CHEAP_HEAD, SOFTWARE)),
            reason=f"{updates:.3g} updates to equilibrium read off {nearest.id} at {nearest.coordinate:.5g}",
        )


def combined(readings: Sequence[float], held_out: float, curve: ExpectedPeak) -> tuple[float, float]:
    """Return mean and error of the peak by readings of the head and by the curve, weighed by their variances.

    Readings scatter from chain to chain, which averages out; `held_out`, the error of the head on systems that it had
    not seen, is common to all chains of a volume, and does not.
    """
    error = hypot(held_out, float(np.std(readings, ddof=1)) / len(readings) ** 0.5)
    weights = np.array([error, curve.error]) ** -2.0
    mean = float(weights @ [np.mean(readings), curve.mean] / weights.sum())
    return mean, float(weights.sum() ** -0.5)


@lru_cache(maxsize=64)
def _first_frame(context: ChainContext, rows: tuple[tuple[str, tuple[float, ...]], ...]) -> float:
    """Return the prediction of the cheap head after the first frame of a chain."""
    frames = FrameMaker(context).push("measure", dict(rows))
    with ConductorProgram(shipped_weights(CHEAP_LAYOUT)) as network:
        return float(network.through(frames.values)[CHEAP_HEAD][0, -1])
