r"""What the chains of a campaign teach its heads: rows of a journal go in, mean frames with labels come out.

A chain teaches once it has `ENOUGH` effective samples of |L|, by its complete visits:

    schedule       log(2 tau_int of |L|)
    quality        log(1 / (2 tau_int)) of sweeps: effective samples per update
    deconfinement  log(<|L|> N_s^(3/2))
    beta_priority  (beta_c - b0) / unit, with the campaign's own beta_c, where it is established

These are the labels of the protocol of the heads, of one chain instead of all chains of a coupling. States are those of
the network in software, wherever it ran: on a device they differ by its rounding.
"""

import hashlib
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metalforge.campaign import JOURNAL, CampaignState, ChainLog, System, finding, load
from metalforge.conductor import ChainContext, FrameMaker, TaughtChain, transition_curve, transition_on
from metalforge.core import Doubles, SpecError, naming, read_bytes, segments_of
from metalforge.reservoir import EsnEngine, EsnWeights, init
from metalforge.statistics import gamma_method

from .theory import lattice_of

ENOUGH = 50.0
"""Effective samples of |L| below which a chain's tau_int is mostly noise: it is then known to a third or so."""
N_BOOTSTRAP = 50
"""Replicas of the peak that a finished campaign teaches."""


def labels_of(loop: Doubles, context: ChainContext) -> dict[str, float]:
    """Return the labels of a chain by |L| of its measured rows; none where they are too few."""
    if len(loop) < ENOUGH or not np.ptp(loop) > 0:
        return {}
    found = gamma_method(loop)
    if len(loop) < ENOUGH * 2 * found.tau_int:
        return {}
    logs = {"schedule": 2 * found.tau_int, "deconfinement": found.mean * context.n_s**1.5}
    labels = {name: log(max(value, 1e-12)) for name, value in logs.items()}
    if context.algorithm == "heatbath":
        labels["quality"] = -labels["schedule"]
    return labels


def peak_label(state: CampaignState, dims: System) -> float | None:
    """Return the label of `beta_priority` on a volume: where its peak is, where that is established."""
    if lattice_of(state.spec).has_other_theory:
        return None
    found = finding(state, dims, n_bootstrap=N_BOOTSTRAP)
    if not found.established or found.transition is None:
        return None
    return (found.transition.result - transition_on(dims).mean) / transition_curve().unit


def _taught(state: CampaignState, chain: ChainLog, engine: EsnEngine, peak: float | None) -> TaughtChain | None:
    """Return what a chain teaches; None for one that was abandoned or is too short."""
    if chain.abandoned or chain.complete <= chain.warmup:
        return None
    context = lattice_of(state.spec).head_context(chain.coordinate, chain.system, chain.start)
    re, im = (chain.columns[name].array(chain.warmup, chain.complete) for name in ("polyakov_re", "polyakov_im"))
    if not (labels := labels_of(np.hypot(re, im), context)):
        return None
    if peak is not None:
        labels["beta_priority"] = peak
    maker, network, count = FrameMaker(context), init(engine.weights), 0
    total: Doubles = np.zeros(engine.units + engine.inputs)
    columns = {name: column.array(0, chain.complete).tolist() for name, column in chain.columns.items()}
    for segment in segments_of(chain.phases, columns, end=chain.complete):
        frames = maker.push(segment.phase, segment.columns).values
        if len(frames):
            states = engine.run(frames, network)
            network = states[-1]
            if segment.phase == "measure":
                total += np.concatenate([states.sum(axis=0, dtype=np.float64), frames.sum(axis=0)])
                count += len(frames)
    return TaughtChain(total / count, labels) if count else None


class TaughtCampaign(NamedTuple):
    """What the chains of one campaign teach, and the SHA-256 of its journal."""

    sha256: str
    chains: tuple[TaughtChain, ...]


def taught_by(directory: Path, weights: EsnWeights) -> TaughtCampaign:
    """Return what the campaign of a directory teaches the heads of weights; it must have ended."""
    with naming(directory):
        state = load(directory).state
        if state.finished is None:
            raise SpecError(
                "the campaign has not ended, and what it would teach may change"
                f"\nhint: go on with it: metalforge resume {directory}"
            )
        sha256 = hashlib.sha256(read_bytes(directory / JOURNAL)).hexdigest()
    engine = EsnEngine(weights, threads=1)
    peaks = {system: peak_label(state, system) for system in state.spec.theory.systems}
    taught = (_taught(state, chain, engine, peaks.get(chain.system)) for chain in state.chains.values())
    return TaughtCampaign(sha256, tuple(chain for chain in taught if chain is not None))
