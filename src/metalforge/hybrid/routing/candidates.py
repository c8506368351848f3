"""Everything of a graph that the device could be given: transforms applied, encodings chosen, jobs compiled and priced.

What cannot be is returned with a verdict: the reason and what would change it.

An op on the host is one call: its arithmetic, and the bytes that come from memory. Weights come from memory only where
those of the whole model do not fit the largest cache. On the device a program is one call, whose price is a round trip
as a host sees it, inputs and outputs included.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from metalforge.core import Cost, Reals, require_at_least, require_known, require_positive
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.reservoir import to_dense
from metalforge.substrates import (
    HOST_STEPS,
    DeviceProfile,
    Gain,
    HostModel,
    Objective,
    ProgramError,
    Quantized,
    ResourceError,
    Roofline,
    costs,
    mesh,
    rank,
    units_on_chip,
)
from metalforge.substrates import profile as find_profile

from .encodings import Option, Weights, encoding_of, encoding_options
from .jobs import ChainJob, DeviceJob, build_chain, build_linear, loading_order, one_after_another
from .ranges import ValueRange
from .rules import Verdict


def op_cost(host: HostModel, node: Node, graph: OpGraph, batch: int = 1) -> Cost:
    """Price a node on the host for `batch` samples."""
    if isinstance(node.op, ops.FanOutOp) or (isinstance(node.op, ops.Elementwise) and node.op.function == "identity"):
        return host.call(0.0, 0.0) * 0.0
    item = 4 if graph.dtype == "float32" else 8
    shapes = [graph.shapes[value] for value in (*node.inputs, *node.outputs)]
    moved = item * batch * sum(ops.entries(shape) for shape in shapes)
    if item * graph.parameters > host.cache_bytes:
        moved += item * node.op.parameters
    flops = node.op.flops([graph.shapes[value] for value in node.inputs])
    return host.call(batch * flops, moved, "f32" if item == 4 else "f64")


def share_cost(host: HostModel, job: DeviceJob, graph: OpGraph, batch: int = 1) -> Cost:
    """Price what the host does for a job: encode, join, and what follows the product."""
    nibbles = job.encoding.rows
    lines = sum(program.inputs for program in job.programs)
    units = sum(program.layers[-1].units for program in job.programs)
    outputs = sum(ops.entries(graph.shapes[graph[name].outputs[0]]) for name in job.nodes)
    flops = HOST_STEPS * (job.positions * nibbles * (lines + units) + outputs)
    return host.call(batch * flops, batch * 8.0 * (job.positions * (lines + units) + outputs), "f64")


Policy: TypeAlias = Literal["default", "seed"]
DEFAULT_PROFILE = "akd1000-published"
DEFAULT_TOLERANCE = 1e-2
"""Relative error of a quantised op. A network trained in floats kept its accuracy to 0.01 points with 8-bit weights and
activations, which err by 0.8 %; with 4-bit weights, at 11 %, it lost more than one."""


class Wishes:
    """What plans are made for. `host` prices the host, this machine's CPU by default; `batch` is the samples of a call.

    `tolerance` is the relative error that a quantised op may have. `precision` such as W4A8 is what everything on the
    device gets, whatever rounding does to it; None lets the tolerance decide, op by op.
    """

    def __init__(
        self,
        policy: Policy = "default",
        objective: Objective = "latency",
        profile: DeviceProfile | str = DEFAULT_PROFILE,
        *,
        tolerance: float = DEFAULT_TOLERANCE,
        precision: str | None = None,
        host: Roofline | None = None,
        host_power_w: float | None = None,
        batch: int = 1,
    ) -> None:
        require_known("policy", policy, get_args(Policy))
        require_known("objective", objective, get_args(Objective))
        require_positive(tolerance=tolerance, host_power_w=host_power_w)
        require_at_least(1, batch=batch)
        self.policy, self.objective, self.tolerance, self.batch = policy, objective, tolerance, batch
        self.precision = precision
        self.encoding = None if precision is None else encoding_of(precision)
        self.profile = find_profile(profile)
        self.host = HostModel(host, power_w=host_power_w)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobCandidate:
    """A job that could be given to the device, and what that would save."""

    job: DeviceJob
    gain: Gain
    device: Cost
    """One call, without updates."""
    update: Cost | None
    """One replacement of its weights, which the graph changes; None where it does not."""
    chip_bytes: int
    """What it is taken to need on the chip."""
    host_share: Cost
    whole: Cost
    """Both, and the updates of its weights that the graph makes in every call."""
    software: Cost
    """The same nodes on the host."""

    @property
    def nodes(self) -> frozenset[str]:
        """What it covers."""
        return frozenset(self.job.nodes)

    @property
    def gains(self) -> bool:
        """Whether something is saved."""
        return self.gain > tuple(0.0 for _ in self.gain)


@dataclass(slots=True, kw_only=True, eq=False)
class Finder:
    """The candidates of one graph under one set of wishes.

    `at_any_error` are nodes that go to the device whatever rounding does to them: what is pinned there, and all that
    the published table puts there.
    """

    graph: OpGraph
    wishes: Wishes
    ranges: Mapping[str, ValueRange]
    at_any_error: Collection[str] = ()
    candidates: list[JobCandidate] = field(default_factory=list)
    refused: dict[str, Verdict] = field(default_factory=dict)

    @property
    def objective(self) -> Objective:
        """What is saved by a job; the published table knows no costs."""
        return "hw_only" if self.wishes.policy == "seed" else self.wishes.objective

    def find(self, eligible: Collection[str]) -> None:
        """Fill `candidates` with jobs for the eligible nodes, and `refused` with why others have none."""
        for run in rectified_chains(self.graph, eligible):
            self._chain(run)
        in_chains = {name for c in self.candidates for name in c.nodes}
        merged: set[str] = set()
        for group in sibling_heads(self.graph, eligible):
            # Where chains take some of them along, the others are still one layer.
            rest = tuple(name for name in group if name not in in_chains)
            for part in dict.fromkeys([group, rest]):
                if len(part) > 1 and self._linear(part):
                    merged |= set(part if part == rest else ())
        for node in self.graph.nodes:
            if node.name not in eligible or node.name in merged:
                continue
            if not isinstance(node.op, ops.Elementwise):
                self._linear((node.name,))
            elif node.name not in in_chains:  # behind an identity, where no layer can take it along
                self._chain((node.name,))
        reached = {name for c in self.candidates for name in c.nodes}
        self.refused = {name: verdict for name, verdict in self.refused.items() if name not in reached}

    def _linear(self, group: Sequence[str]) -> bool:
        """Add a layer, sibling layers as one, or a recurrent step; return whether the chip can take it.

        There are two candidates where the matrix is too wide to stay on chip: whole, and in blocks of rows.
        """
        node = self.graph[group[0]]
        x, exact = self.ranges[node.inputs[0]], False
        if isinstance(node.op, ops.RecurrentStep):
            matrix: Weights = pack_recurrent(node.op)
            spans = {node.name: slice(0, matrix.shape[0])}
            x = x.beside(self.ranges[node.outputs[0]])
        else:
            layers = [op for name in group if isinstance(op := self.graph[name].op, ops.FullyConnectedOp)]
            matrix, exact = merge_siblings([op.weights for op in layers]), all(op.int4_exact for op in layers)
            spans = dict(zip(group, one_after_another(len(op.matrix) for op in layers), strict=True))
        # Ranges are folded into the weights: several of them would take integers off their grid.
        x = x.of_one_size() if exact or isinstance(matrix, Quantized) else x
        outputs, inputs = matrix.shape
        positions = self._positions(group[0])
        try:
            option = self._encoding(group, matrix, x, positions)
            if isinstance(option, Verdict):
                return self._refuse(group, option)
            divisions: list[tuple[slice, ...]] = [()]
            most = rows_on_chip(inputs, option.encoding.digits, self.wishes.profile)
            if most is not None and 0 < most < outputs:  # as many blocks as are needed, of one size
                divisions.append(split_rows(outputs, -(-outputs // -(-outputs // most))))
            jobs = [build_linear(spans, matrix, x, option, rows=rows, positions=positions) for rows in divisions]
        except ProgramError as error:
            return self._refuse(group, Verdict(_first_line(error)))
        added = [self._add(job) for job in jobs]
        return any(added)

    def _encoding(self, nodes: Sequence[str], matrix: Weights, x: ValueRange, positions: int) -> Option | Verdict:
        """Return the encoding to use; a verdict where none is good enough."""
        options = encoding_options(matrix, x)
        if (asked := self.wishes.encoding) is not None:
            same = [o for o in options if o.encoding.activation_bits == asked.activation_bits]
            # Integers that exist keep their digits.
            found = [o for o in same if o.encoding.digits == asked.digits or isinstance(matrix, Quantized)]
            return found[0] if found else Verdict("no such encoding")
        best = min(options, key=lambda o: (o.error, o.encoding.digits, o.encoding.activation_bits))
        if self.objective == "accuracy":
            return best
        outputs, inputs = matrix.shape

        def price(option: Option) -> tuple[float, ...]:
            vectors, encoding = self.wishes.batch * positions, option.encoding
            seconds = costs.shape_seconds(int(inputs), int(outputs), encoding, vectors, self.wishes.profile)
            return seconds, encoding.activation_bits, encoding.digits

        good = [option for option in options if option.error <= self.wishes.tolerance]
        if good:
            return min(good, key=price)
        return best if set(nodes) & set(self.at_any_error) else self._too_coarse("its best encoding is", best.error)

    def _chain(self, nodes: Sequence[str]) -> None:
        """Add a run of layers and bounded ReLUs, with as few digits for a linear last layer as the tolerance allows."""
        x = self.ranges[self.graph[nodes[0]].inputs[0]]
        ends_linear = isinstance(self.graph[nodes[-1]].op, ops.FullyConnectedOp)
        asked = self.wishes.encoding
        if asked is not None and asked.activation_bits != 4:
            self._refuse(nodes[-1:], Verdict(f"the chip's own rectifier has 4 bits, {self.wishes.precision} has more"))
            return
        jobs: list[ChainJob] = []
        tried = (1, 2, 3) if asked is None else (asked.digits,)
        for digits in tried if ends_linear else (1,):
            try:
                jobs.append(build_chain(self.graph, nodes, x, digits=digits, positions=self._positions(nodes[0])))
            except ProgramError as error:  # integers that exist may need more digits than this
                self._refuse(nodes[-1:], Verdict(_first_line(error)))
        if not jobs:
            return
        good = [job for job in jobs if job.error <= self.wishes.tolerance]
        best = min(jobs, key=lambda job: job.error)
        if good or asked is not None or set(nodes) & set(self.at_any_error):
            self._add(good[0] if good else best)
        else:
            both = "4 bits on both sides of the chip's rectifier are"
            self._refuse(nodes[-1:], self._too_coarse(both, best.error))

    def _too_coarse(self, what: str, error: float) -> Verdict:
        limit = self.wishes.tolerance
        scale = 10.0 ** (np.floor(np.log10(error)) - 1)  # a little more than the error, in two digits
        return Verdict(
            f"{what} predicted to err by {error:.1e}, above the tolerance {limit:g}",
            fix=f"allow a tolerance of {np.ceil(error / scale) * scale:.2g}",
        )

    def _add(self, job: DeviceJob) -> bool:
        """Add a job if the empty chip can take it."""
        profile, host, batch = self.wishes.profile, self.wishes.host, self.wishes.batch
        try:
            placements = placed_together([job], profile)
        except ResourceError as error:
            first, _, hint = str(error).partition("\nhint: ")
            return self._refuse(job.nodes, Verdict(first.splitlines()[0], fix=hint))
        # The steps of a sequence wait for each other: a call each.
        calls = job.positions if isinstance(self.graph[job.nodes[0]].op, ops.RecurrentSequence) else 1
        device = costs.programs_cost(job.programs, profile, batch * job.positions // calls) * calls
        share = share_cost(host, job, self.graph, batch)
        software = Cost.total(op_cost(host, self.graph[name], self.graph, batch) for name in job.nodes)
        pushes = sum(op.of in job.nodes for op in _updates(self.graph))
        update, spent = None, device
        if pushes:
            update = Cost.total(costs.update_cost(p.layers[0].weights.nbytes, profile) for p in job.programs)
            spent = Cost.total([device, update * pushes])
        whole = Cost.total([spent, share])
        # Without a figure for the host's power its share is left out on both sides.
        objective = self.objective
        compared = spent if objective == "energy" and share.energy is None else whole
        gain = tuple(a - b for a, b in zip(rank(software, objective), rank(compared, objective), strict=True))
        if objective == "hw_only":
            gain = (float(len(job.nodes)), *gain)
        elif objective == "accuracy":
            gain = (-job.error, *gain)
        self.candidates.append(
            JobCandidate(
                job=job,
                gain=gain,
                device=device,
                update=update,
                chip_bytes=sum(row.bytes for placement in placements for row in placement.rows),
                host_share=share,
                whole=whole,
                software=software,
            )
        )
        return True

    def _positions(self, name: str) -> int:
        """Return the vectors that a sample has for a node: the extents between batch and last axis."""
        return ops.entries(self.graph.shapes[self.graph[name].inputs[0]][:-1])

    def _refuse(self, nodes: Sequence[str], verdict: Verdict) -> bool:
        for name in nodes:
            self.refused[name] = verdict
        return False


def placed_together(jobs: Sequence[DeviceJob], profile: DeviceProfile) -> list[mesh.Placement]:
    """Return where programs go, side by side; raises `ResourceError` where they do not fit."""
    return mesh.side_by_side([program for job in loading_order(jobs) for program in job.programs], profile)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


# What may be done to a graph so that more of it maps; none of it changes what is computed.


def pack_recurrent(op: ops.RecurrentStep) -> Reals:
    """Return [W_in | W_res], (units, inputs + units)."""
    return np.hstack([op.weights.w_in, to_dense(op.weights.w_res)])


def source_of(graph: OpGraph, value: str) -> str:
    """Return the value that fan-outs copied to make this one; itself where there were none."""
    producer = graph.producer(value)
    while producer is not None and isinstance(producer.op, ops.FanOutOp):
        value = producer.inputs[0]
        producer = graph.producer(value)
    return value


def sibling_heads(graph: OpGraph, eligible: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return groups of two or more of the `eligible` layers that read one value, fan-outs looked through.

    Real and quantised weights are not put together: integers that exist keep their own scales.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for node in graph.nodes:
        if node.name in eligible and isinstance(node.op, ops.FullyConnectedOp):
            key = source_of(graph, node.inputs[0]), isinstance(node.op.weights, Quantized)
            groups.setdefault(key, []).append(node.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def merge_siblings(layers: Sequence[Weights]) -> Weights:
    """Return the layers' rows as one matrix, all real or all quantised; then with one scale per row."""
    parts = [w for w in layers if isinstance(w, Quantized)]
    if not parts:
        return np.concatenate([w for w in layers if not isinstance(w, Quantized)])
    return Quantized(
        values=np.concatenate([q.values.astype(np.int16) for q in parts]),
        scales=np.concatenate([np.broadcast_to(q.scales, q.values.shape[:1]) for q in parts]),
        limits=(min(q.limits[0] for q in parts), max(q.limits[1] for q in parts)),
        error=np.concatenate([q.error for q in parts]),
    )


def rectified_chains(graph: OpGraph, eligible: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return runs of `eligible` nodes that one program can hold: layer, bounded ReLU, layer, ..., in every length.

    A value inside a run has no reader outside it and is no output of the graph; a layer whose weights change while the
    model runs is in no run, since its thresholds would have to follow.
    """
    usable = set(eligible) - {op.of for op in _updates(graph)}
    turns = {"fully_connected": "bounded_relu", "bounded_relu": "fully_connected"}
    runs = []
    for node in graph.nodes:
        if node.name not in usable or not isinstance(node.op, ops.FullyConnectedOp):
            continue
        run = [node]
        while (following := _only_reader(graph, run[-1])) is not None:
            if following.name not in usable or following.op.kind != turns[run[-1].op.kind]:
                break
            run.append(following)
            runs.append(tuple(n.name for n in run))
    return tuple(runs)


def split_rows(rows: int, size: int) -> tuple[slice, ...]:
    """Return rows 0 .. `rows` in runs of `size`; the last may be shorter."""
    require_at_least(1, rows=rows, size=size)
    return tuple(slice(start, min(start + size, rows)) for start in range(0, rows, size))


def rows_on_chip(inputs: int, digits: int, chip: DeviceProfile) -> int | None:
    """Return the rows of a matrix that one on-chip processor holds; None where the profile does not say."""
    limit = chip.mesh.onchip_bytes
    return None if limit is None else units_on_chip(inputs, limit.value) // digits


def _updates(graph: OpGraph) -> list[ops.GradientUpdate | ops.MutationUpdate]:
    return [node.op for node in graph.nodes if isinstance(node.op, ops.GradientUpdate | ops.MutationUpdate)]


def _only_reader(graph: OpGraph, node: Node) -> Node | None:
    """Return the node that alone reads what another makes; None where there are several, or the caller reads it."""
    value = node.outputs[0]
    readers = graph.consumers(value)
    if len(readers) != 1 or value in graph.outputs or len(readers[0].inputs) != 1:
        return None
    return readers[0]
