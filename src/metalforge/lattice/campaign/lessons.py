r"""What the chains of a campaign teach its heads: rows of a journal go in, mean frames with labels come out.

A chain teaches once it has `ENOUGH` effective samples of |L|, from its own rows up to the end of a visit:

    schedule       log(2 tau_int of |L|)
    quality        log(1 / (2 tau_int)) of sweeps: effective samples per update
    deconfinement  log(<|L|> N_s^(3/2))
    beta_priority  (beta_c - b0) / unit, with the campaign's own beta_c, where it is established (after its end)

These are the labels of the protocol of the heads, of one chain instead of all chains of a coupling.
"""

import hashlib
from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from metalforge.campaign.findings import finding
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.theory import System
from metalforge.conductor.features import ChainContext, FrameMaker
from metalforge.conductor.retrain import MeanFrames
from metalforge.conductor.scaling import transition_curve, transition_on
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.files import naming, read_bytes
from metalforge.core.rows import Phase
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.weights import EsnWeights
from metalforge.statistics import gamma_method

from .theory import lattice_of

if TYPE_CHECKING:
    from metalforge.conductor.adopting import TaughtChain

ENOUGH = 50.0
"""Effective samples of |L| below which a chain's tau_int is mostly noise: it is then known to a third or so."""
N_BOOTSTRAP = 50
"""Replicas of the peak that a finished campaign teaches."""


class SettledChain(NamedTuple):
    """What one chain showed until some update, and what its heads should have said of it."""

    chain: str
    updates: int
    mean: Doubles
    labels: Mapping[str, float]


class MeasuredRows(NamedTuple):
    """Rows of a chain up to the end of a visit, as they were taken: a journal may grow meanwhile.

    `columns` begin with row `first`; `loop` is |L| of all measured rows.
    """

    chain: str
    context: ChainContext
    quenched: int
    warmup: int
    first: int
    end: int
    columns: Mapping[str, Doubles]
    loop: Doubles

    def until(self, end: int) -> "MeasuredRows":
        """Return those up to an earlier update."""
        return self._replace(end=end, loop=self.loop[: end - self.warmup])


class _Reader:
    """The frames of one chain, averaged over its measurement, up to where it was read."""

    def __init__(self, engine: Engine, context: ChainContext) -> None:
        self._maker, self.frames = FrameMaker(context), MeanFrames(engine)

    @property
    def count(self) -> int:
        """Rows that were read."""
        return self._maker.count

    def read(self, rows: MeasuredRows) -> None:
        """Read on to the end of a visit; the warm-up is over."""
        bounds: list[tuple[Phase, int]] = [("quench", rows.quenched), ("warmup", rows.warmup), ("measure", rows.end)]
        for phase, until in bounds:
            if until > (begin := self.count):
                part = slice(begin - rows.first, until - rows.first)
                columns = {name: column[part].tolist() for name, column in rows.columns.items()}
                self.frames.take(self._maker.push(phase, columns).values, counts=phase == "measure")


class Lessons:
    """Reads the chains of one campaign, each from its first row on."""

    def __init__(self, spec: CampaignSpec, weights: EsnWeights) -> None:
        self._theory, self._engine = lattice_of(spec), Engine(weights, threads=1)
        self._readers: dict[str, _Reader] = {}

    def take(self, log: ChainLog, end: int) -> MeasuredRows | None:
        """Return the rows of a chain that were not read yet, until update `end`; None where it teaches nothing.

        That are chains of a ladder, those that were given up, and those that are in their warm-up.
        """
        if log.abandoned or log.ladder or end <= log.warmup:
            return None
        first = self._readers[log.id].count if log.id in self._readers else 0
        return MeasuredRows(
            chain=log.id,
            context=self._theory.head_context(log.coordinate, log.system, log.start),
            quenched=log.cheap,
            warmup=log.warmup,
            first=first,
            end=end,
            columns={name: column.array(first, end) for name, column in log.columns.items()},
            loop=np.hypot(*(log.columns[name].array(log.warmup, end) for name in ("polyakov_re", "polyakov_im"))),
        )

    def of(self, rows: MeasuredRows) -> SettledChain | None:
        """Return what a chain teaches; None where it is too short to. Its rows come in order."""
        if not (labels := labels_of(rows)):
            return None
        reader = self._readers.setdefault(rows.chain, _Reader(self._engine, rows.context))
        reader.read(rows)
        return SettledChain(rows.chain, rows.end, reader.frames.mean, labels) if reader.frames.frames else None


def labels_of(rows: MeasuredRows) -> dict[str, float]:
    """Return the labels of a chain by its measured rows; none where they are too few."""
    loop = rows.loop
    if len(loop) < ENOUGH or not np.ptp(loop) > 0:
        return {}
    found = gamma_method(loop)
    if len(loop) < ENOUGH * 2 * found.tau_int:
        return {}
    labels = {"schedule": log_of(2 * found.tau_int), "deconfinement": log_of(found.mean * rows.context.n_s**1.5)}
    if rows.context.algorithm == "heatbath":
        labels["quality"] = -labels["schedule"]
    return labels


def log_of(value: float) -> float:
    """Return the logarithm of a positive number."""
    return log(max(value, 1e-12))


def peak_label(state: CampaignState, dims: System) -> float | None:
    """Return the label of `beta_priority` on a volume: where its peak is, where that is established."""
    if lattice_of(state.spec).has_other_theory:
        return None
    found = finding(state, dims, n_bootstrap=N_BOOTSTRAP)
    if not found.established or found.transition is None:
        return None
    return (found.transition.result - transition_on(dims).mean) / transition_curve().unit


def lessons_of(state: CampaignState, weights: EsnWeights) -> list[SettledChain]:
    """Return what the chains of a campaign teach by their complete visits, with the peaks that it established."""
    reading = Lessons(state.spec, weights)
    peaks = {dims: peak_label(state, dims) for dims in state.spec.theory.systems}
    lessons = []
    for log_ in state.chains.values():
        rows = reading.take(log_, log_.complete)
        lesson = None if rows is None else reading.of(rows)
        if lesson is not None:
            peak = peaks.get(log_.system)
            more = {} if peak is None else {"beta_priority": peak}
            lessons.append(lesson._replace(labels={**lesson.labels, **more}))
    return lessons


class TaughtCampaign(NamedTuple):
    """What the chains of one campaign teach, and the SHA-256 of its journal."""

    sha256: str
    chains: "tuple[TaughtChain, ...]"


def taught_by(directory: Path, weights: EsnWeights) -> TaughtCampaign:
    """Return what the campaign of a directory teaches the heads of weights; it must have ended."""
    from metalforge.campaign.results import load  # a campaign that runs has no use for it
    from metalforge.campaign.store.directory import JOURNAL
    from metalforge.conductor.adopting import TaughtChain

    with naming(directory):
        state = load(directory).state
        if state.finished is None:
            raise SpecError(
                "the campaign has not ended, and what it would teach may change"
                f"\nhint: go on with it: metalforge resume {directory}"
            )
        sha256 = hashlib.sha256(read_bytes(directory / JOURNAL)).hexdigest()
    chains = tuple(TaughtChain(lesson.mean, lesson.labels) for lesson in lessons_of(state, weights))
    return TaughtCampaign(sha256, chains)
