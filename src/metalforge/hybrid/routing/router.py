"""Every op where it belongs: a graph, a device profile and an objective in, a `Plan` that explains itself out.

Policy `default` asks whether the NPU can run an op, what rounding would do to it, and what both sides would cost, and
places by the objective:

- `latency`, `energy`: whatever is cheaper. An op without a figure ranks last, and the plan says so.
- `accuracy`: software, which does not round; what is pinned to the NPU gets the finest encoding.
- `hw_only`: all that the NPU can do within the tolerance, whatever it costs.

Policy `seed` follows the table of the seed documents (`rules`).

`OpRow` says in words and figures why an op is where it is, what that costs, and what the other side would;
`assemble` puts a plan together: partitions, transfers, totals, and what a reader must know besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, TypeAlias, get_args

from metalforge.core import Cost, Modelled, PlacementError, find, require_known
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph, find_regions
from metalforge.hybrid.model.opening import Model, as_graph
from metalforge.reservoir import DENSE_EIGENVALUES, spectral_radius
from metalforge.substrates import NO_POWER, DeviceProfile, HostModel, ResourceError, choose

from .candidates import Finder, JobCandidate, Wishes, op_cost, placed_together
from .encodings import ERROR_MODEL, precision_of
from .jobs import ChainJob, DeviceJob, LinearJob, loading_order
from .plan import InputRange, OpPlan, Partition, Plan, PlanRecord, Transfer, short
from .ranges import Examples, ValueRange, find_ranges, observe
from .rules import SeedRow, Substrate, Verdict, npu_verdict, seed_row

Pin: TypeAlias = Literal["npu", "software"]
PINNED_HOST = "pinned to software"
FULL = "no room on the chip beside the rest of the plan"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpRow:
    """What was decided for one op, and what there was to choose from."""

    node: Node
    taken: JobCandidate | None
    possible: JobCandidate | None
    """The best candidate that covers it, taken or not."""
    verdict: Verdict
    pin: str | None
    seed: SeedRow | None
    wishes: Wishes

    def plan(self, graph: OpGraph, jobs: Mapping[str, JobCandidate]) -> OpPlan:
        """Return the row as a record; `jobs` are the candidates on the device by the nodes they cover."""
        reason, fix = self._why()
        op, taken = self.node.op, self.taken
        target = jobs.get(op.of) if isinstance(op, ops.GradientUpdate | ops.MutationUpdate) else None
        alone = op_cost(self.wishes.host, self.node, graph, self.wishes.batch)
        device, host, instead = None, alone, None
        on_chip: dict[str, Any] = {}
        if taken is not None:
            job, part = taken.job, _part(self.node, taken, graph)
            device, host, instead = taken.device * part, taken.host_share * part, alone
            rows = job.spans[self.node.name] if isinstance(job, LinearJob) else slice(None)  # of its own outputs
            on_chip = {
                "job": job.name,
                "encoding": precision_of(job.encoding),
                "passes": job.passes,
                "chip_bytes": round(part * taken.chip_bytes),
                "predicted_error": job.error,
                "error_bound": float(job.error_bound[rows].max()),
                "error_model": _error_model(self.node, job),
                "beyond": job.beyond,
            }
        elif self.possible is not None:
            instead = self.possible.whole * _part(self.node, self.possible, graph)
        if target is not None:
            device = target.update
        return OpPlan(
            op=self.node.name,
            kind=op.kind,
            substrate=self._substrate(pushed=target is not None),
            reason=reason,
            fix=fix,
            note="" if self.seed is None else self.seed.note,
            fallback=self._fallback(),
            device=device,
            host=host,
            instead=instead,
            **on_chip,
        )

    def _substrate(self, *, pushed: bool) -> Substrate:
        if self.taken is not None:
            return "npu+software" if isinstance(self.node.op, ops.RecurrentStep) else "npu"
        if self.pin is None and self.seed is not None and not self._needs_device():
            return self.seed.substrate
        return "software->npu" if pushed and self.seed is None else "software"

    def _needs_device(self) -> bool:
        """Whether the op is nothing but device work, so that a label could not stand without a job."""
        op = self.node.op
        layer = isinstance(op, ops.FullyConnectedOp | ops.RecurrentStep) or (
            isinstance(op, ops.Elementwise) and op.function == "bounded_relu"
        )
        return layer and self.seed is not None and self.seed.substrate != "software"

    def _fallback(self) -> bool:
        work = isinstance(self.node.op, ops.FullyConnectedOp | ops.RecurrentStep | ops.SoftwareOnly)
        if self.taken is not None or self.pin is not None or not work:
            return False
        return self.wishes.policy == "seed" or self.possible is None or self.possible.gains

    def _why(self) -> tuple[str, str]:
        """Return the reason and how to make it map."""
        taken, possible, wishes = self.taken, self.possible, self.wishes
        if self.pin is not None:
            return PINNED_HOST if taken is None else f"pinned to the NPU: {_against(taken, wishes)}", ""
        if wishes.policy == "seed":
            return self._by_table()
        if taken is not None:
            compared = taken.software.energy or wishes.objective != "energy"
            return f"{_better('on the NPU', wishes) if compared else 'the one figure'}: {_against(taken, wishes)}", ""
        if possible is None:
            return self.verdict.reason, self.verdict.fix
        there = f'objective="hw_only" or pin={{"{self.node.name}": "npu"}} puts it there'
        if wishes.objective == "accuracy":
            error = possible.job.error
            return f"software does not round; the NPU's best encoding is predicted to err by {error:.1e}", there
        if possible.gains:
            return FULL, "pin other ops to software, or use a second device"
        return f"{_better('in software', wishes)}: {_against(possible, wishes)}", there

    def _by_table(self) -> tuple[str, str]:
        if self.seed is None:
            return "no row of the published table speaks of it", ""
        if self.taken is None and self._needs_device():
            why = self.verdict.reason if self.possible is None else FULL
            return f"the published table says {self.seed.substrate} ({self.seed.reason}), but {why}", self.verdict.fix
        fix = ""
        if isinstance(self.node.op, ops.FullyConnectedOp) and self.seed.substrate == "software":
            fix = 'policy="default" slices its weights into digits, and its rows over processors'
        return self.seed.reason, fix


def _against(candidate: JobCandidate, wishes: Wishes) -> str:
    """Return both sides' figures in words."""
    profile, host = wishes.profile, wishes.host
    whole = candidate.whole
    together = f" for {len(candidate.job.nodes)} ops together" if len(candidate.job.nodes) > 1 else ""
    here, there = candidate.software.latency, whole.latency
    if wishes.objective == "energy":
        here, there = candidate.software.energy, whole.energy
        if here is None or there is None:
            return f"modelled {short(candidate.device.energy)} on {profile.name}{together}; {NO_POWER}"
    return f"modelled {short(here)} on the host ({host.profile}) against {short(there)} with {profile.name}{together}"


def _better(where: str, wishes: Wishes) -> str:
    if wishes.objective == "hw_only":
        return "objective hw_only"
    return f"{'cheaper in energy' if wishes.objective == 'energy' else 'quicker'} {where}"


def _part(node: Node, candidate: JobCandidate, graph: OpGraph) -> float:
    """Return a node's share of its job: by weights."""
    weights = {name: graph[name].op.parameters for name in candidate.job.nodes}
    total = sum(weights.values())
    return weights[node.name] / total if total else 1 / len(weights)


def _error_model(node: Node, job: DeviceJob) -> str:
    """Return what the predicted error speaks of."""
    if isinstance(job, ChainJob):
        return f"{ERROR_MODEL}; of what the whole chain gives"
    op = node.op
    if not isinstance(op, ops.RecurrentStep) or op.weights.units > DENSE_EIGENVALUES:
        return ERROR_MODEL
    radius = spectral_radius(op.weights.w_res)
    if radius >= 1:
        return f"{ERROR_MODEL}; of one step, and the spectral radius {radius:.2f} does not damp it"
    return f"{ERROR_MODEL}; of one step, up to {1 / sqrt(1 - radius**2):.2g} times as much in a long run"


def assemble(
    graph: OpGraph,
    rows: Sequence[OpRow],
    chosen: Sequence[JobCandidate],
    wishes: Wishes,
    ranges: Mapping[str, ValueRange],
) -> Plan:
    """Return the plan of some rows; `ranges` are those that it was made with."""
    profile = wishes.profile
    jobs = {name: candidate for candidate in chosen for name in candidate.nodes}
    planned = tuple(row.plan(graph, jobs) for row in rows)
    sides: dict[str, Literal["npu", "software"]] = {op.op: "npu" if op.job else "software" for op in planned}
    nothing = Cost(
        latency=Modelled(value=0.0, unit="s", profile=profile.name),
        energy=Modelled(value=0.0, unit="J", profile=profile.name),
    )
    record = PlanRecord(
        graph=graph.name,
        policy=wishes.policy,
        objective=wishes.objective,
        profile=profile.name,
        host_profile=wishes.host.profile,
        tolerance=wishes.tolerance,
        batch=wishes.batch,
        ops=planned,
        partitions=tuple(Partition(side=side, ops=names) for side, names in find_regions(graph.before, sides)),
        transfers=tuple(_transfer(candidate.job, wishes.batch, profile) for candidate in chosen),
        device_total=Cost.total([nothing, *(op.device for op in planned if op.device is not None)]),
        host_total=Cost.total([op.host for op in planned]),
        notes=tuple(_notes(planned, rows, chosen, wishes)),
        precision=wishes.precision,
        ranges=tuple(InputRange.of(name, ranges.get(name)) for name in graph.inputs),
    )
    return Plan(record=record, graph=graph, jobs=loading_order([c.job for c in chosen]), profile=profile)


def _transfer(job: DeviceJob, batch: int, profile: DeviceProfile) -> Transfer:
    """Return the bytes of one call: one per input line of every row, four per output."""
    rows = batch * job.positions * job.encoding.rows
    down = rows * sum(program.inputs for program in job.programs)
    width = {"linear": 4, "bounded_relu": 1}
    up = rows * sum(width[p.layers[-1].activation] * p.layers[-1].units for p in job.programs)
    link = profile.call.link_bytes_per_s
    return Transfer(
        job=job.name,
        to_device_bytes=down,
        to_host_bytes=up,
        link=None if link is None else Modelled(value=(down + up) / link.value, unit="s", profile=profile.name),
    )


def _notes(
    planned: Sequence[OpPlan], rows: Sequence[OpRow], chosen: Sequence[JobCandidate], wishes: Wishes
) -> list[str]:
    profile, host = wishes.profile, wishes.host
    notes = [f"every cost is modelled, the device's from {profile.name}, the host's from {host.profile}"]
    left = {id(c): c for row in rows if row.taken is None and (c := row.possible) is not None}
    notes += [f"the host is quicker than the NPU at {text}" for text in _slower(left.values(), host, profile)]
    notes += [f"on the NPU, but the host would be quicker: {text}" for text in _slower(chosen, host, profile)]
    if chosen:
        notes.append(
            f"transfers are part of the round trip that {profile.name} states for a call, and are not added to it"
        )
    programs = sum(len(c.job.programs) for c in chosen)
    if programs > 1:
        notes.append(f"{programs} programs lie side by side; a device that holds one at a time loads them by turns")
    if any(op.host.energy is None for op in planned):
        ranking = (
            "; ops in software rank last, and the host's share is not counted" if wishes.objective == "energy" else ""
        )
        notes.append(f"{NO_POWER}{ranking}")
    return notes


def _slower(candidates: Iterable[JobCandidate], host: HostModel, profile: DeviceProfile) -> list[str]:
    """Return in words which candidates the host does quicker, with both sides' sums; empty where there are none."""
    priced = [(c, c.software.latency, c.whole.latency) for c in candidates]
    found = [c for c, here, there in priced if here is not None and there is not None and here.value < there.value]
    if not found:
        return []
    names = ", ".join(dict.fromkeys(name for c in found for name in c.job.nodes))
    soft, hard = (short(Cost.total(costs).latency) for costs in ([c.software for c in found], [c.whole for c in found]))
    return [f"{names}: modelled {soft} on the CPU ({host.profile}) against {hard} with {profile.name}"]


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
        for name, side in pins.items():
            verdict = find(f"op of graph {graph.name}", name, verdicts)
            require_known("side to pin to", side, get_args(Pin))
            if side == "npu" and not verdict.ok:
                raise _cannot_pin(name, verdict)
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
