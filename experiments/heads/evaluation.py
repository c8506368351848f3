r"""Scores of every head on couplings and seeds it has not seen, against the strongest of its baselines.

    skill = 1 - loss / loss of the baseline

The loss of thermalisation and phase is the share of wrong answers (a probability above 1/2 is a yes), that of other
classes the Brier score, that of numbers the mean square; `value` and `baseline` are accuracy, Brier score or root mean
square. The baseline is the one with the least loss on the test chains themselves: choosing it there can only favour
it. Chains of a coupling share its physics, so intervals come from drawing whole clusters again. A head is trusted when
the lower end of the interval of its skill is above 0; thermalisation needs skill in hot and in cold chains besides.
The whole protocol is docs/protocols/heads.md.

`beta_priority` is judged by leaving an N_t out (`peak_scores`): curve and head are fitted without it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.layouts import PEAK
from metalforge.conductor.scaling import ScalingCurve, scaled_coupling, transition_curve
from metalforge.conductor.scores import HeadScore, skill_interval
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec

from .baselines import baselines_for
from .head_kinds import TRAJECTORIES, label_of
from .labels import Example, jittered, supposing
from .predictions import layout_of, predictions, values_of
from .routes import ROUTES, Route
from .scores import PeakScore, PeakSpread
from .training import Trained, label_rows, reservoir, train_heads
from .transition_fit import LatticePeak, without
from .two_loop import two_loop_peak

ACCURACY = ("thermalization", "phase")
"""Labels whose answer is taken as yes or no."""


class NeitherPhase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Test chains whose interval covers the cut between the phases: how often head and baseline say the likelier side.

    `value` and `baseline` are None where there is no such chain.
    """

    name: str
    chains: int
    value: float | None
    baseline: float | None
    baseline_name: str


class _Losses(NamedTuple):
    """Sums of losses and numbers of rows, one entry per chain that has the label; `chain` says which."""

    sums: Doubles
    rows: Doubles
    chain: NDArray[np.int64]

    def mean(self) -> float:
        return float(self.sums.sum() / self.rows.sum())


def evaluate(
    trained: Trained,
    train: Sequence[Example],
    test: Sequence[Example],
    *,
    routes: Sequence[Route] = ROUTES,
) -> list[HeadScore]:
    """Return a score for every head that has labels on both sides, of every kind of chain, on every route."""
    shared = {e.cluster for e in train} & {e.cluster for e in test}
    if shared:
        raise SpecError(f"training and test chains must not share couplings on a lattice. Got {sorted(shared)[0]}")
    layout = layout_of(trained)
    contests = {
        name: contest
        for name in trained.fits
        if label_of(name) != PEAK and (contest := _strongest(layout[name], train, test)) is not None
    }
    scores = []
    for route in routes:
        found = predictions(route, trained, train, test)
        scores += [_score(layout[name], found[name], contest, test, route) for name, contest in contests.items()]
    return scores


def neither_phase(trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> NeitherPhase | None:
    """Return the score of ambiguous chains, which are in no other score; None without a trained head for the phase."""
    name = next((head for head in trained.fits if label_of(head) == "phase"), None)
    if name is None:
        return None
    head = layout_of(trained)[name]
    chosen = _strongest(head, train, test)
    unclear = [example for example in test if np.isfinite(label_rows(example, name, ambiguous=True)).any()]
    if not unclear:
        return NeitherPhase(name=name, chains=0, value=None, baseline=None, baseline_name="")
    rival_name = "constant" if chosen is None else chosen[0]
    rival = baselines_for(name, train, classes=True)[rival_name]
    said = [values_of(trained, example.inputs)[name] for example in unclear]
    ours, theirs = (
        _losses(head, answers, unclear, ambiguous=True) for answers in (said, [rival(example) for example in unclear])
    )
    return NeitherPhase(
        name=name,
        chains=len(unclear),
        value=_shown(head, ours.mean()),
        baseline=_shown(head, theirs.mean()),
        baseline_name=rival_name,
    )


def _strongest(head: HeadSpec, train: Sequence[Example], test: Sequence[Example]) -> tuple[str, _Losses] | None:
    """Return the baseline with the least loss on the test chains; None where chains of either part lack the label."""
    for part in (train, test):
        if len({e.cluster for e in part if np.isfinite(label_rows(e, head.name)).any()}) < 2:
            return None
    fitted = baselines_for(head.name, train, classes=head.loss == "log")
    asked = [np.isfinite(label_rows(example, head.name)).any() for example in test]
    none = np.zeros(0)  # of chains without the label nothing is asked
    contests = [
        (name, _losses(head, [said(e) if has else none for e, has in zip(test, asked, strict=True)], test))
        for name, said in fitted.items()
    ]
    return min(contests, key=lambda contest: contest[1].mean())


def _yes_or_no(head: HeadSpec) -> bool:
    return label_of(head.name) in ACCURACY


def _losses(head: HeadSpec, said: Sequence[Doubles], test: Sequence[Example], *, ambiguous: bool = False) -> _Losses:
    found = []
    for i, (answer, example) in enumerate(zip(said, test, strict=True)):
        label = label_rows(example, head.name, ambiguous=ambiguous)
        known = np.isfinite(label)
        if known.any():
            y, p = label[known], answer[known]
            loss = ((p > 0.5) != (y > 0.5)) if _yes_or_no(head) else (p - y) ** 2
            found.append((float(loss.sum()), float(known.sum()), i))
    sums, rows, chain = zip(*found, strict=True)
    return _Losses(np.array(sums), np.array(rows), np.array(chain))


def _by_cluster(losses: _Losses, test: Sequence[Example], start: str = "") -> tuple[Doubles, Doubles]:
    """Return sums of losses and rows by cluster, of chains of one start if so."""
    sums: dict[object, list[float]] = {}
    for loss, rows, i in zip(losses.sums, losses.rows, losses.chain, strict=True):
        if start in ("", test[i].chain.entry.start):
            entry = sums.setdefault(test[i].cluster, [0.0, 0.0])
            entry[0] += float(loss)
            entry[1] += float(rows)
    found = np.array(list(sums.values())).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _score(
    head: HeadSpec, said: Sequence[Doubles], contest: tuple[str, _Losses], test: Sequence[Example], route: str
) -> HeadScore:
    ours, (rival, theirs) = _losses(head, said, test), contest
    (sums, rows), (rivals, _) = _by_cluster(ours, test), _by_cluster(theirs, test)
    skill = skill_interval(sums.tolist(), rivals.tolist(), rows.tolist())
    rng = np.random.default_rng(8)
    drawn = rng.integers(len(sums), size=(2000, len(sums)))
    means = sums[drawn].sum(axis=1) / rows[drawn].sum(axis=1)
    shown = [_shown(head, x) for x in (ours.mean(), *np.quantile(means, [0.025, 0.975]), theirs.mean())]
    apart = [_skill_of(ours, theirs, test, start) for start in ("hot", "cold")]
    trusted = skill.low > 0
    if label_of(head.name) == "thermalization":
        trusted = trusted and all(one is not None and one > 0 for one in apart)
    return HeadScore(
        name=head.name,
        metric="accuracy" if _yes_or_no(head) else "brier" if head.loss == "log" else "rmse",
        value=shown[0],
        low=min(shown[1:3]),
        high=max(shown[1:3]),
        baseline=shown[3],
        baseline_name=rival,
        skill=skill.value,
        skill_low=skill.low,
        skill_high=skill.high,
        clusters=len(sums),
        of="trajectories" if head.name in TRAJECTORIES else "sweeps",
        skill_hot=apart[0],
        skill_cold=apart[1],
        trusted=trusted,
        route=route,
    )


def _skill_of(ours: _Losses, theirs: _Losses, test: Sequence[Example], start: str) -> float | None:
    sums, _ = _by_cluster(ours, test, start)
    rivals, _ = _by_cluster(theirs, test, start)
    return float(1 - sums.sum() / rivals.sum()) if len(sums) and rivals.sum() > 0 else None


def _shown(head: HeadSpec, loss: float) -> float:
    """Return a mean loss as the metric that is shown."""
    if _yes_or_no(head):
        return 1 - float(loss)
    return float(loss) if head.loss == "log" else float(np.sqrt(loss))


BOUNDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 10.0)
"""Distances |x| up to which readings of the peak are taken together."""


class PeakStudy(NamedTuple):
    """What leaving one N_t out gave: the head's score, each N_t apart, and how far readings are off by distance."""

    scores: list[HeadScore]
    apart: list[PeakScore]
    spread: list[PeakSpread]


def peak_study(
    train: Sequence[Example],
    test: Sequence[Example],
    peaks: Sequence[LatticePeak],
    layout: HeadLayout,
    *,
    seed: int = 1,
    routes: Sequence[Route] = ROUTES,
    curve: ScalingCurve | None = None,
) -> PeakStudy | None:
    """Return how well heads say where the peak is on an N_t that neither they nor the curve have seen."""
    curve = curve or transition_curve()
    head = next((h for h in layout.heads if label_of(h.name) == PEAK), None)
    places = {peak.dims: peak.beta for peak in peaks}
    swept = [
        e
        for e in (*train, *test)
        if e.chain.entry.algorithm == "heatbath" and e.lattice[0] in places and not e.chain.entry.fault
    ]
    extents = sorted({peak.dims[3] for peak in peaks})
    if head is None or len(extents) < 3:
        return None
    asked: list[Example] = []
    curve_says: list[Doubles] = []
    loops_say: list[Doubles] = []
    answers: dict[Route, list[Doubles]] = {route: [] for route in routes}
    only = msgspec.structs.replace(layout, heads=(head,))
    for n_t in extents:
        blind = without(peaks, n_t, curve)
        learn = jittered(
            [e for e in swept if e.chain.entry.part == "train" and e.lattice[0][3] != n_t], unit=curve.unit
        )
        here = [
            supposing(e, at, (places[e.lattice[0]] - at.mean) / curve.unit)
            for e in swept
            if e.chain.entry.part == "test" and e.lattice[0][3] == n_t
            for at in [blind(n_t, e.lattice[0][0])]
        ]
        if not here or not learn:
            continue
        fitted = train_heads(learn, weights=reservoir(seed), layout=only)
        for route in routes:
            answers[route] += predictions(route, fitted, learn, here)[head.name]
        nearest = min((p for p in peaks if p.dims[3] != n_t), key=lambda p: (abs(p.dims[3] - n_t), -p.dims[0]))
        scaled = two_loop_peak(n_t, (nearest.dims[3], nearest.beta))
        for e in here:
            at = blind(n_t, e.lattice[0][0])
            curve_says.append(np.zeros(len(e.inputs)))
            loops_say.append(np.full(len(e.inputs), (scaled - at.mean) / curve.unit))
        asked += here
    if not asked:
        return None
    rivals = {"transition curve": curve_says, "two-loop scaling": loops_say}
    contests = [(name, _losses(head, said, asked)) for name, said in rivals.items()]
    contest = min(contests, key=lambda one: one[1].mean())
    scores = [_score(head, answers[route], contest, asked, route) for route in routes]
    first = answers[routes[0]]
    apart = [_one_extent(head, n_t, asked, {"head": first, **rivals}, curve.unit) for n_t in extents]
    return PeakStudy(scores, apart, _spreads(head, asked, first, curve, peaks))


def _one_extent(
    head: HeadSpec, n_t: int, asked: Sequence[Example], said: Mapping[str, Sequence[Doubles]], unit: float
) -> PeakScore:
    taken = [i for i, e in enumerate(asked) if e.lattice[0][3] == n_t]
    here = [asked[i] for i in taken]
    off = {
        name: unit * float(np.sqrt(_losses(head, [answers[i] for i in taken], here).mean()))
        for name, answers in said.items()
    }
    return PeakScore(
        n_t=n_t,
        clusters=len({e.cluster for e in here if np.isfinite(label_rows(e, head.name)).any()}),
        head=off["head"],
        curve=off["transition curve"],
        two_loop=off["two-loop scaling"],
    )


def _spreads(
    head: HeadSpec,
    asked: Sequence[Example],
    said: Sequence[Doubles],
    curve: ScalingCurve,
    peaks: Sequence[LatticePeak],
) -> list[PeakSpread]:
    """Return root mean squares by how far a coupling is from where the curve has the transition."""
    found: dict[float, list[Doubles]] = {}
    for example, answer in zip(asked, said, strict=True):
        label = label_rows(example, head.name)
        known = np.isfinite(label)
        dims = example.lattice[0]
        x = abs(scaled_coupling(example.beta, without(peaks, dims[3], curve)(dims[3], dims[0])))
        bound = next((b for b in BOUNDS if x <= b), BOUNDS[-1])
        if known.any():
            found.setdefault(bound, []).append((answer - label)[known] ** 2)
    return [
        PeakSpread(x=bound, error=curve.unit * float(np.sqrt(np.concatenate(found[bound]).mean())))
        for bound in sorted(found)
    ]
