"""Faults found by rules alone and with the anomaly head, at one false alarm in 10^5 updates.

A rule sees the plaquettes of a chain: one that is not finite is an alarm, and so is one that is further from the mean
of those before it than `band` of their deviations. The head gives an alarm where what it says of a frame is above
`threshold`. Both numbers are set on sound training chains, and judged on test chains. That links are unitary is not in
the rows of a corpus; the gate of a campaign looks at that besides.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.features import SWEEPS
from metalforge.core.arrays import Doubles

from .labels import RELAXED, Example, label_of
from .predictions import values_of
from .scores import FaultGate, FaultScore
from .training import Trained

RATE = 1e-5
"""False alarms an update."""
WITHIN = 64
"""Updates within which a fault is to be found."""


def gate_study(trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> FaultGate | None:
    """Return the thresholds and what they find; None without an anomaly head or without faulty chains to test."""
    name = next((head for head in trained.fits if label_of(head) == "anomaly"), None)
    swept = [e for e in train if e.chain.entry.algorithm == "heatbath"]
    asked = [e for e in test if e.chain.entry.algorithm == "heatbath"]
    if name is None or not any(e.chain.entry.fault for e in asked):
        return None
    sound = [e for e in swept if not e.chain.entry.fault]
    band = _threshold([_strayed(e) for e in sound])
    threshold = _threshold([_said(trained, name, e) for e in sound])
    held = [e for e in asked if not e.chain.entry.fault]
    alarms = [(_strayed(e) > band, _said(trained, name, e) > threshold) for e in held]
    faulty: dict[str, list[Example]] = {}
    for example in asked:
        if example.chain.entry.fault:
            faulty.setdefault(example.chain.entry.fault, []).append(example)
    return FaultGate(
        threshold=threshold,
        band=band,
        updates=sum(len(a) * SWEEPS for a, _ in alarms),
        alarms_by_rules=int(sum(a.sum() for a, _ in alarms)),
        alarms_with_head=int(sum((a | b).sum() for a, b in alarms)),
        faults=tuple(_found(fault, some, trained, name, band, threshold) for fault, some in sorted(faulty.items())),
    )


def _threshold(values: Sequence[Doubles]) -> float:
    """Return what one in 1 / `RATE` updates is above; there is one value per frame."""
    every = np.sort(np.concatenate(values))
    allowed = int(len(every) * SWEEPS * RATE)
    return float(every[-1 - allowed])


def _looked_at(example: Example) -> NDArray[np.bool_]:
    return np.asarray(example.rows - SWEEPS + 1 >= RELAXED)


def _strayed(example: Example) -> Doubles:
    """Return how far the plaquettes of each frame get from those before it, in their deviations; frames looked at."""
    plaquette = example.chain.column("plaquette")[: int(example.rows[-1]) + 1]
    start = RELAXED // 2
    counts = np.arange(1, len(plaquette) - start + 1)
    sums, squares = np.cumsum(plaquette[start:]), np.cumsum(plaquette[start:] ** 2)
    mean = sums / counts
    deviation = np.sqrt(np.maximum(squares / counts - mean**2, 1e-16))
    found = []
    for row in example.rows[_looked_at(example)]:
        before = row - SWEEPS - start
        frame = plaquette[row - SWEEPS + 1 : row + 1]
        found.append(float(np.abs(frame - mean[before]).max() / deviation[before]))
    return np.array(found)


def _said(trained: Trained, name: str, example: Example) -> Doubles:
    return values_of(trained, example.inputs)[name][_looked_at(example)]


def _found(
    fault: str, examples: Sequence[Example], trained: Trained, name: str, band: float, threshold: float
) -> FaultScore:
    delays: list[list[float]] = [[], []]
    for example in examples:
        begin, rows = example.chain.entry.fault_from, example.rows[_looked_at(example)]
        plaquette = example.chain.column("plaquette")
        broken = np.flatnonzero(~np.isfinite(plaquette))
        by_rules, by_head = _strayed(example) > band, _said(trained, name, example) > threshold
        for k, alarm in enumerate((by_rules, by_rules | by_head)):
            seen = [int(row) + 1 - begin for row in rows[alarm] if row >= begin] + [
                int(i) + 1 - begin for i in broken[:1]
            ]
            if seen and min(seen) <= WITHIN:
                delays[k].append(float(min(seen)))
    shares = [len(found) / len(examples) for found in delays]
    medians = [float(np.median(found)) if found else None for found in delays]
    return FaultScore(
        fault=fault,
        chains=len(examples),
        found_by_rules=shares[0],
        found_with_head=shares[1],
        delay_by_rules=medians[0],
        delay_with_head=medians[1],
    )
