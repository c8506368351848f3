"""Generators of the community's interface (gest-api: Xopt, Optimas, libEnsemble) as steerers.

A generator has `suggest(num_points) -> [{"coordinate": 5.69, "_id": 3}]`,
`ingest([{"coordinate": 5.69, "chi": 1.3, ...}])` and `finalize()`; its vocabulary (VOCS) names variables, objectives
and observables. Nothing is imported from gest-api: whatever has these methods will do. Here they are

    variables {"coordinate": [low, high]}     objectives {"chi": "MAXIMIZE"}     observables chi_error, cost
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from metalforge.core.errors import PluginError, SpecError
from metalforge.core.steering import HistorySteerer, Observation, Suggestion

VARIABLE, OBJECTIVE, ERROR, COST = "coordinate", "chi", "chi_error", "cost"


class Generator(Protocol):
    """What a generator of the community looks like from here."""

    def suggest(self, num_points: int | None = None) -> list[dict[str, Any]]:
        """Return points to evaluate, `num_points` of them or as many as the generator likes."""
        ...

    def ingest(self, results: list[dict[str, Any]]) -> None:
        """Take evaluated points."""
        ...


class GeneratorSteerer(HistorySteerer):
    """A generator with `ask` and `tell`; the range is that of its `vocs` unless it is given.

    The interface has no pending points: a generator knows what it suggested and has no result for. So what it
    suggested and nobody measures yet is handed out first, which makes `ask` repeatable. It has no way to replace a
    result either: a chain that goes on is passed on once, at its first observation. To resume, tell a fresh generator
    `state().observations`.
    """

    name = "generator"

    def __init__(self, generator: Generator, *, low: float | None = None, high: float | None = None) -> None:
        for method in ("suggest", "ingest"):
            if not callable(getattr(generator, method, None)):
                raise PluginError(f"a generator must have `{method}`. {type(generator).__name__} has not")
        own_low, own_high = _read_vocs(generator)
        low, high = (own_low if low is None else low), (own_high if high is None else high)
        if low is None or high is None:
            raise SpecError(
                f"{type(generator).__name__} has no `vocs` with a range of `{VARIABLE}`"
                "\nhint: GeneratorSteerer(generator, low=..., high=...)"
            )
        self.generator = generator
        super().__init__(low, high)
        self._open: list[dict[str, Any]] = []  # suggested, without a result
        self._told: set[str] = set()

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return at most n of the generator's points that are not pending."""
        waiting = self.history.asked(n, pending)
        missing = n - len(self._idle(waiting))
        if missing > 0:
            self._open += self._suggested(missing)
        reason = f"suggested by {type(self.generator).__name__}"
        return [Suggestion(coordinate=float(point[VARIABLE]), reason=reason) for point in self._idle(waiting)[:n]]

    def tell(self, observations: Sequence[Observation]) -> None:
        """Pass on what came out, with the generator's own `_id` and constants where it suggested the point."""
        super().tell(observations)
        results = []
        for seen in observations:
            if seen.id in self._told:
                continue
            self._told.add(seen.id)
            own = next((p for p in self._open if self.history.same(p[VARIABLE], seen.coordinate)), None)
            if own is not None:
                self._open.remove(own)
            point = {VARIABLE: seen.coordinate} if own is None else own
            results.append(point | {OBJECTIVE: seen.value, ERROR: seen.error, COST: seen.cost})
        if results:
            self.generator.ingest(results)

    def _idle(self, waiting: list[float]) -> list[dict[str, Any]]:
        """Return the open points that are not being measured; each pending coordinate accounts for one of them."""
        rest = list(waiting)
        idle = []
        for point in self._open:
            match = next((coordinate for coordinate in rest if self.history.same(point[VARIABLE], coordinate)), None)
            if match is None:
                idle.append(point)
            else:
                rest.remove(match)
        return idle

    def _suggested(self, n: int) -> list[dict[str, Any]]:
        try:
            points = self.generator.suggest(n)
        except ValueError:
            # The interface lets a generator refuse a number; without one it gives what it can, and the rest waits.
            points = self.generator.suggest(None)
        for point in points:
            coordinate = point.get(VARIABLE)
            if coordinate is None or not self.history.low <= coordinate <= self.history.high:
                raise PluginError(
                    f"{type(self.generator).__name__} must suggest `{VARIABLE}` in "
                    f"[{self.history.low}, {self.history.high}]. Got {coordinate}"
                )
        return [dict(point) for point in points]


def _read_vocs(generator: object) -> tuple[float | None, float | None]:
    """Return the range in a generator's vocabulary, if it has one; refuse one that asks for anything else."""
    vocs = getattr(generator, "vocs", None)
    if vocs is None:
        return None, None
    variables, objectives = _field(vocs, "variables"), _field(vocs, "objectives")
    outputs = {*objectives, *_field(vocs, "constraints"), *_field(vocs, "observables")}
    if set(variables) != {VARIABLE} or OBJECTIVE not in objectives or outputs - {OBJECTIVE, ERROR, COST}:
        raise PluginError(
            f"a generator must have the variable {VARIABLE}, the objective {OBJECTIVE} and no outputs but {ERROR} and "
            f"{COST}. {type(generator).__name__} has variables {sorted(variables)}, outputs {sorted(outputs)}"
        )
    direction = objectives[OBJECTIVE] if isinstance(objectives, Mapping) else "MAXIMIZE"
    if "MINIM" in (direction if isinstance(direction, str) else type(direction).__name__).upper():
        raise PluginError(f"a generator must maximise {OBJECTIVE}. {type(generator).__name__} minimises it")
    domain = variables[VARIABLE]
    low, high = getattr(domain, "domain", domain)
    return float(low), float(high)


def _field(vocs: object, name: str) -> Any:
    found = vocs.get(name) if isinstance(vocs, Mapping) else getattr(vocs, name, None)
    return {} if found is None else found
