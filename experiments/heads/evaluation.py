r"""Scores of every head on couplings and seeds it has not seen, against the strongest of its baselines.

    skill = 1 - loss / loss of the baseline

The loss of thermalisation and phase is the share of wrong answers (a probability above 1/2 is a yes), that of other
classes the Brier score, that of numbers the mean square; `value` and `baseline` are accuracy, Brier score or root mean
square. The baseline is the one with the least loss on the test chains themselves: choosing it there can only favour
it. Chains of a coupling share its physics, so intervals come from drawing whole clusters again. A head is trusted when
the lower end of the interval of its skill is above 0; thermalisation needs skill in hot and in cold chains besides.
The whole protocol is docs/protocols/heads.md.

`beta_priority` is judged by leaving an N_t out (`peak_study`): curve and head are fitted without it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.conductor.curves import transition_curve
from metalforge.conductor.scores import HeadScore, skill_interval
from metalforge.conductor.shipped import PEAK
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.reservoir.weights import EsnWeights

from .baselines import baselines_for
from .labels import TRAJECTORIES, Example, jittered, label_of, supposing
from .predictions import ROUTES, Route, layout_of, predictions
from .training import label_rows, reservoir, train_heads
from .transition_fit import LatticePeak, two_loop_peak, without

ACCURACY = ("thermalization", "phase")
"""Labels whose answer is taken as yes or no."""
CURVE, TWO_LOOP = "transition curve", "two-loop scaling"


class PeakScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the peak is on an N_t that was left out: root mean squares in beta of what each says."""

    n_t: int
    clusters: int
    head: float
    curve: float
    """The transition curve, an interpolation in N_t."""
    two_loop: float


class _Losses(NamedTuple):
    """Sums of losses and numbers of rows of the chains that have a label."""

    sums: Doubles
    rows: Doubles
    examples: Sequence[Example]

    def mean(self) -> float:
        return float(self.sums.sum() / self.rows.sum())

    def by_cluster(self, start: str = "") -> tuple[Doubles, Doubles]:
        """Return sums of losses and rows by cluster, of chains of one start if so."""
        found: dict[object, Doubles] = {}
        for loss, rows, example in zip(self.sums, self.rows, self.examples, strict=True):
            if start in ("", example.entry.start):
                found[example.entry.place] = found.get(example.entry.place, np.zeros(2)) + np.array([loss, rows])
        sums, rows = np.array(list(found.values())).reshape(-1, 2).T
        return sums, rows


class _Rival(NamedTuple):
    """A baseline and its losses on the test chains."""

    name: str
    losses: _Losses


def evaluate(
    weights: EsnWeights,
    train: Sequence[Example],
    test: Sequence[Example],
    *,
    routes: Sequence[Route] = ROUTES,
) -> list[HeadScore]:
    """Return a score for every head that has labels on both sides, of every kind of chain, on every route."""
    shared = {e.entry.place for e in train} & {e.entry.place for e in test}
    if shared:
        raise SpecError(f"training and test chains must not share couplings on a lattice. Got {sorted(shared)[0]}")
    layout = layout_of(weights)
    rivals = {
        name: rival
        for name in (head.name for head in layout.heads if head.trained)
        if label_of(name) != PEAK and (rival := _strongest(layout[name], train, test)) is not None
    }
    scores = []
    for route in routes:
        found = predictions(route, weights, train, test)
        scores += [_score(layout[name], found[name], rival, test, route) for name, rival in rivals.items()]
    return scores


def _strongest(head: HeadSpec, train: Sequence[Example], test: Sequence[Example]) -> _Rival | None:
    """Return the baseline with the least loss on the test chains; None where chains of either part lack the label."""
    labelled = [[e for e in part if np.isfinite(label_rows(e, head.name)).any()] for part in (train, test)]
    if min(len({e.entry.place for e in part}) for part in labelled) < 2:
        return None
    fitted = baselines_for(head.name, train, classes=head.loss == "log")
    asked = labelled[1]
    rivals = [_Rival(name, _losses(head, [said(example) for example in asked], asked)) for name, said in fitted.items()]
    return min(rivals, key=lambda rival: rival.losses.mean())


def _yes_or_no(head: HeadSpec) -> bool:
    return label_of(head.name) in ACCURACY


def _losses(head: HeadSpec, said: Sequence[Doubles], test: Sequence[Example]) -> _Losses:
    sums, rows, examples = [], [], []
    for answer, example in zip(said, test, strict=True):
        label = label_rows(example, head.name)
        known = np.isfinite(label)
        if known.any():
            y, p = label[known], answer[known]
            loss = ((p > 0.5) != (y > 0.5)) if _yes_or_no(head) else (p - y) ** 2
            sums.append(float(loss.sum()))
            rows.append(float(known.sum()))
            examples.append(example)
    return _Losses(np.array(sums), np.array(rows), examples)


def _score(head: HeadSpec, said: Sequence[Doubles], rival: _Rival, test: Sequence[Example], route: str) -> HeadScore:
    ours, theirs = _losses(head, said, test), rival.losses
    (sums, rows), (others, _) = ours.by_cluster(), theirs.by_cluster()
    skill = skill_interval(sums.tolist(), others.tolist(), rows.tolist())
    drawn = np.random.default_rng(8).integers(len(sums), size=(2000, len(sums)))
    means = sums[drawn].sum(axis=1) / rows[drawn].sum(axis=1)
    value, *ends, baseline = (
        _shown(head, x) for x in (ours.mean(), *np.quantile(means, [0.025, 0.975]), theirs.mean())
    )
    hot, cold = (_skill_of(ours, theirs, start) for start in ("hot", "cold"))
    trusted = skill.low > 0
    if label_of(head.name) == "thermalization":
        trusted = trusted and all(one is not None and one > 0 for one in (hot, cold))
    return HeadScore(
        name=head.name,
        metric="accuracy" if _yes_or_no(head) else "brier" if head.loss == "log" else "rmse",
        value=value,
        low=min(ends),
        high=max(ends),
        baseline=baseline,
        baseline_name=rival.name,
        skill=skill.value,
        skill_low=skill.low,
        skill_high=skill.high,
        clusters=len(sums),
        of="trajectories" if head.name in TRAJECTORIES else "sweeps",
        skill_hot=hot,
        skill_cold=cold,
        trusted=trusted,
        route=route,
    )


def _skill_of(ours: _Losses, theirs: _Losses, start: str) -> float | None:
    sums, others = ours.by_cluster(start)[0], theirs.by_cluster(start)[0]
    return float(1 - sums.sum() / others.sum()) if len(sums) and others.sum() > 0 else None


def _shown(head: HeadSpec, loss: float) -> float:
    """Return a mean loss as the metric that is shown."""
    if _yes_or_no(head):
        return 1 - float(loss)
    return float(loss) if head.loss == "log" else float(np.sqrt(loss))


def peak_study(
    train: Sequence[Example],
    test: Sequence[Example],
    peaks: Sequence[LatticePeak],
    layout: HeadLayout,
    *,
    seed: int = 1,
    routes: Sequence[Route] = ROUTES,
) -> tuple[list[HeadScore], tuple[PeakScore, ...]]:
    """Return how well heads say where the peak is on an N_t that neither they nor the curve have seen, and each N_t."""
    curve = transition_curve()
    head = next((h for h in layout.heads if label_of(h.name) == PEAK), None)
    places = {peak.dims: peak.beta for peak in peaks}
    swept = [
        e
        for e in (*train, *test)
        if e.entry.algorithm == "heatbath" and e.entry.lattice[0] in places and not e.entry.fault
    ]
    extents = sorted({peak.dims[3] for peak in peaks})
    if head is None or len(extents) < 3:
        return [], ()
    asked: list[Example] = []
    said: dict[str, list[Doubles]] = {name: [] for name in (*routes, CURVE, TWO_LOOP)}
    only = msgspec.structs.replace(layout, heads=(head,))
    for n_t in extents:
        blind = without(peaks, n_t, curve)
        others = [e for e in swept if e.entry.part == "train" and e.entry.lattice[0][3] != n_t]
        tests = [e for e in swept if e.entry.part == "test" and e.entry.lattice[0][3] == n_t]
        learn = jittered(others, unit=curve.unit)
        if not tests or not learn:
            continue
        expected = [blind(n_t, e.entry.lattice[0][0]) for e in tests]
        here = [
            supposing(e, at, (places[e.entry.lattice[0]] - at.mean) / curve.unit)
            for e, at in zip(tests, expected, strict=True)
        ]
        fitted, _ = train_heads(learn, weights=reservoir(seed), layout=only)
        for route in routes:
            said[route] += predictions(route, fitted, learn, here)[head.name]
        nearest = min((p for p in peaks if p.dims[3] != n_t), key=lambda p: (abs(p.dims[3] - n_t), -p.dims[0]))
        scaled = two_loop_peak(n_t, (nearest.dims[3], nearest.beta))
        for e, at in zip(here, expected, strict=True):
            said[CURVE].append(np.zeros(len(e.inputs)))
            said[TWO_LOOP].append(np.full(len(e.inputs), (scaled - at.mean) / curve.unit))
        asked += here
    if not asked:
        return [], ()
    rivals = [_Rival(name, _losses(head, said[name], asked)) for name in (CURVE, TWO_LOOP)]
    rival = min(rivals, key=lambda one: one.losses.mean())
    scores = [_score(head, said[route], rival, asked, route) for route in routes]
    return scores, tuple(_one_extent(head, n_t, asked, said, routes[0], curve.unit) for n_t in extents)


def _one_extent(
    head: HeadSpec, n_t: int, asked: Sequence[Example], said: Mapping[str, Sequence[Doubles]], route: Route, unit: float
) -> PeakScore:
    taken = [i for i, e in enumerate(asked) if e.entry.lattice[0][3] == n_t]
    here = [asked[i] for i in taken]
    losses = {name: _losses(head, [said[name][i] for i in taken], here) for name in (route, CURVE, TWO_LOOP)}
    ours, curve, two_loop = (unit * float(np.sqrt(one.mean())) for one in losses.values())
    clusters = {e.entry.place for e in losses[route].examples}
    return PeakScore(n_t=n_t, clusters=len(clusters), head=ours, curve=curve, two_loop=two_loop)
