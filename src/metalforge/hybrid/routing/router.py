"""Every op where it belongs: a graph, a device profile and an objective in, a `Plan` that explains itself out.

Policy `default` asks whether the NPU can run an op, what rounding would do to it, and what both sides would cost, and
places by the objective:

- `latency`, `energy`: whatever is cheaper. An op without a figure ranks last, and the plan says so.
- `accuracy`: software, which does not round; what is pinned to the NPU gets the finest encoding.
- `hw_only`: all that the NPU can do within the tolerance, whatever it costs.

Policy `seed` follows the table of the seed documents (`rules`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from metalforge.core import PlacementError, find, require_known
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.opening import Model, as_graph
from metalforge.substrates import ResourceError, choose

from .candidates import Finder, JobCandidate, Wishes, placed_together
from .plan import OpPlan, Plan
from .ranges import Examples, find_ranges, observe
from .rows import OpRow, assemble
from .rules import Verdict, npu_verdict, seed_row

Pin: TypeAlias = Literal["npu", "software"]


class OperationRouter(Wishes):
    """Makes plans."""

    def plan(
        self,
        model: Model,
        *,
        pin: Mapping[str, Pin] | None = None,
        strict: bool = False,
        calibration: Examples | None = None,
    ) -> Plan:
        """Return where every op runs.

        Parameters
        ----------
        model
            A graph, an `EsnWeights`, a fitted estimator, or the path of an ONNX file or of weights.
        pin
            Ops that must be on one side, whatever it costs and whatever rounding does to them.
        strict
            Raise where a layer, a recurrent step or an op that only software has would fall back to software because
            the NPU cannot run it. Activations, sums and updates are the host's share of the work and no fallback; nor
            is software that was chosen for its cost, or pinned.
        calibration
            Example inputs by name, an array for the only one, or a list of series (`model.inputs`). A run in software
            shows how large every value gets.
            Without it only values are known whose inputs have a range in the graph, or that an activation bounds.

        Raises
        ------
        PlacementError
            An op is pinned where it cannot run; `strict` and something would fall back.
        """
        graph, pins = as_graph(model), dict(pin or {})
        ranges = find_ranges(graph, None if calibration is None else observe(graph, calibration))
        verdicts = {node.name: npu_verdict(node, graph, ranges) for node in graph.nodes}
        _check_pins(graph, pins, verdicts)
        pinned = {name for name, side in pins.items() if side == "npu"}
        able = {name for name, verdict in verdicts.items() if verdict.ok and name not in pins}
        by_table = self.policy == "seed"
        seeds = {node.name: row for node in graph.nodes if by_table and (row := seed_row(node)) is not None}
        if by_table:
            able &= {name for name, row in seeds.items() if row.substrate in ("npu", "npu+software")}
        at_any_error = pinned | able if by_table else pinned
        finder = Finder(graph=graph, wishes=self, ranges=ranges, at_any_error=at_any_error)
        finder.find(pinned | able)
        for name in pinned & set(finder.refused):
            raise _cannot_pin(name, finder.refused[name])
        chosen = choose(finder.candidates, self._fit, pinned)
        if chosen is None:
            names = ", ".join(f"`{name}`" for name in sorted(pinned))
            raise PlacementError(f"{names} are pinned to the NPU and do not fit {self.profile.name} side by side")
        rows = []
        for node in graph.nodes:
            covering = [c for c in finder.candidates if node.name in c.nodes]
            rows.append(
                OpRow(
                    node=node,
                    taken=next((c for c in chosen if node.name in c.nodes), None),
                    possible=max(covering, key=lambda c: c.gain, default=None),
                    verdict=finder.refused.get(node.name, verdicts[node.name]),
                    pin=pins.get(node.name),
                    seed=seeds.get(node.name),
                    wishes=self,
                )
            )
        plan = assemble(graph, rows, chosen, self, ranges)
        if strict:
            _refuse_fallbacks(plan.record.ops)
        return plan

    def _fit(self, some: Sequence[JobCandidate]) -> bool:
        """Whether the programs of some jobs fit the chip side by side."""
        try:
            placed_together([c.job for c in some], self.profile)
        except ResourceError:
            return False
        return True


def _check_pins(graph: OpGraph, pins: Mapping[str, Pin], verdicts: Mapping[str, Verdict]) -> None:
    for name, side in pins.items():
        verdict = find(f"op of graph {graph.name}", name, verdicts)
        require_known("side to pin to", side, get_args(Pin))
        if side == "npu" and not verdict.ok:
            raise _cannot_pin(name, verdict)


def _cannot_pin(name: str, verdict: Verdict) -> PlacementError:
    hint = f"\nhint: {verdict.fix}" if verdict.fix else ""
    return PlacementError(f"`{name}` is pinned to the NPU, which cannot run it: {verdict.reason}{hint}")


def _refuse_fallbacks(rows: tuple[OpPlan, ...]) -> None:
    lost = [row for row in rows if row.fallback]
    if lost:
        lines = [f"  {row.op} ({row.kind}): {row.reason}" + (f"; {row.fix}" if row.fix else "") for row in lost]
        raise PlacementError(
            "strict, and these ops would fall back to software:\n"
            + "\n".join(lines)
            + "\nhint: make them map as said, pin them to software, or plan without strict"
        )
