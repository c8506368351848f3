"""Everything of a graph that the device could be given: transforms applied, encodings chosen, jobs compiled and priced.

What cannot be is returned with a verdict: the reason and what would change it.

An op on the host is one call: its arithmetic, and the bytes that come from memory. Weights come from memory only where
those of the whole model do not fit the largest cache. On the device a program is one call, whose price is a round trip
as a host sees it, inputs and outputs included.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from metalforge.core import Cost, require_at_least, require_known, require_positive
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import (
    Elementwise,
    FanOutOp,
    FullyConnectedOp,
    GradientUpdate,
    MutationUpdate,
    RecurrentSequence,
    RecurrentStep,
    entries,
)
from metalforge.substrates import (
    HOST_STEPS,
    DeviceProfile,
    Encoding,
    Gain,
    HostModel,
    Objective,
    ProgramError,
    Quantized,
    ResourceError,
    costs,
    mesh,
    rank,
)

from .encodings import Option, Weights, cheapest, encoding_of, encoding_options, finest
from .jobs import ChainJob, DeviceJob, build_chain, build_linear, loading_order
from .ranges import ValueRange
from .rules import Verdict
from .transforms import merge_siblings, pack_recurrent, rectified_chains, rows_on_chip, sibling_heads, split_rows


def op_cost(host: HostModel, node: Node, graph: OpGraph, batch: int = 1) -> Cost:
    """Price a node on the host for `batch` samples."""
    if isinstance(node.op, FanOutOp) or (isinstance(node.op, Elementwise) and node.op.function == "identity"):
        return host.call(0.0, 0.0) * 0.0
    item = 4 if graph.dtype == "float32" else 8
    shapes = [graph.shapes[value] for value in (*node.inputs, *node.outputs)]
    moved = item * batch * sum(entries(shape) for shape in shapes)
    if item * graph.parameters > host.cache_bytes:
        moved += item * node.op.parameters
    flops = node.op.flops([graph.shapes[value] for value in node.inputs])
    return host.call(batch * flops, moved, "f32" if item == 4 else "f64")


def share_cost(host: HostModel, job: DeviceJob, graph: OpGraph, batch: int = 1) -> Cost:
    """Price what the host does for a job: encode, join, and what follows the product."""
    nibbles = job.encoding.rows
    lines = sum(program.inputs for program in job.programs)
    units = sum(program.layers[-1].units for program in job.programs)
    outputs = sum(entries(graph.shapes[graph[name].outputs[0]]) for name in job.nodes)
    flops = HOST_STEPS * (job.positions * nibbles * (lines + units) + outputs)
    return host.call(batch * flops, batch * 8.0 * (job.positions * (lines + units) + outputs), "f64")


Policy: TypeAlias = Literal["default", "seed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wishes:
    """`tolerance` is the relative error that a quantised op may have, `batch` the samples of one call."""

    policy: Policy
    objective: Objective
    profile: DeviceProfile
    tolerance: float
    host: HostModel
    batch: int
    precision: str | None = None
    """Such as W4A8: the encoding of everything on the device, whatever its error."""

    def __post_init__(self) -> None:
        require_known("policy", self.policy, get_args(Policy))
        require_known("objective", self.objective, get_args(Objective))
        require_positive(tolerance=self.tolerance)
        require_at_least(1, batch=self.batch)
        if self.precision is not None:
            encoding_of(self.precision)  # raises for what is none


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

    def find(self, eligible: Collection[str]) -> None:
        """Fill `candidates` with jobs for the eligible nodes, and `refused` with why others have none."""
        chains = rectified_chains(self.graph, eligible)
        for run in chains:
            self._chain(run)
        in_chains = {name for c in self.candidates for name in c.nodes}
        merged: set[str] = set()
        for group in sibling_heads(self.graph, eligible):
            # Where chains take some of them along, the others are still one layer.
            rest = tuple(name for name in group if name not in in_chains)
            for part in dict.fromkeys([group, rest]):
                if len(part) > 1 and self._merged(part):
                    merged |= set(part if part == rest else ())
        for node in self.graph.nodes:
            if node.name not in eligible or node.name in merged:
                continue
            if not isinstance(node.op, Elementwise):
                self._single(node)
            elif node.name not in in_chains:  # behind an identity, where no layer can take it along
                self._chain((node.name,))
        reached = {name for c in self.candidates for name in c.nodes}
        self.refused = {name: verdict for name, verdict in self.refused.items() if name not in reached}

    def _single(self, node: Node) -> None:
        """Add a layer, or the packed matrix of a recurrent step."""
        op = node.op
        x = self.ranges[node.inputs[0]]
        if isinstance(op, RecurrentStep):
            state = self.ranges[node.outputs[0]]
            self._linear((node.name,), pack_recurrent(op), x.beside(state), exact=False)
        elif isinstance(op, FullyConnectedOp):
            self._linear((node.name,), op.weights, x, exact=op.int4_exact)

    def _merged(self, group: Sequence[str]) -> bool:
        """Add sibling layers as one; return whether the chip can take it."""
        ops = [op for name in group if isinstance(op := self.graph[name].op, FullyConnectedOp)]
        matrix, spans = merge_siblings([(name, op.weights) for name, op in zip(group, ops, strict=True)])
        x = self.ranges[self.graph[group[0]].inputs[0]]
        return self._linear(group, matrix, x, exact=all(op.int4_exact for op in ops), spans=spans)

    def _linear(
        self,
        nodes: Sequence[str],
        matrix: Weights,
        x: ValueRange,
        *,
        exact: bool,
        spans: Mapping[str, slice] | None = None,
    ) -> bool:
        """Add the candidates for one matrix: whole, and in blocks of rows where it is too wide to stay on chip."""
        # Ranges are folded into the weights: several of them would take integers off their grid.
        x = x.of_one_size() if exact or isinstance(matrix, Quantized) else x
        outputs, inputs = matrix.shape
        positions = self._positions(nodes[0])
        try:
            option = self._encoding(nodes, matrix, x, positions)
            if isinstance(option, Verdict):
                return self._refuse(nodes, option)
            jobs = [
                build_linear(
                    nodes, matrix, x, option.encoding, option.error, spans=spans, rows=rows, positions=positions
                )
                for rows in ((), *self._blocks(outputs, inputs, option.encoding))
            ]
        except ProgramError as error:
            return self._refuse(nodes, Verdict(_first_line(error)))
        added = [self._add(job) for job in jobs]
        return any(added)

    def _encoding(self, nodes: Sequence[str], matrix: Weights, x: ValueRange, positions: int) -> Option | Verdict:
        """Return the encoding to use; a verdict where none is good enough."""
        options = encoding_options(matrix, x)
        if self.wishes.precision is not None:
            return _of_precision(options, self.wishes.precision)
        if self.wishes.objective == "accuracy":
            return finest(options)
        outputs, inputs = matrix.shape

        def price(encoding: Encoding) -> tuple[float, ...]:
            vectors = self.wishes.batch * positions
            seconds = costs.shape_seconds(int(inputs), int(outputs), encoding, vectors, self.wishes.profile)
            return seconds, encoding.activation_bits, encoding.digits

        option = cheapest(options, self.wishes.tolerance, price)
        if option is not None:
            return option
        best = finest(options)
        if set(nodes) & set(self.at_any_error):
            return best
        return self._too_coarse("its best encoding is", best.error)

    def _blocks(self, outputs: int, inputs: int, encoding: Encoding) -> Iterable[tuple[slice, ...]]:
        """Return the division into rows for on-chip processors, where the whole layer does not fit one."""
        most = rows_on_chip(inputs, encoding.digits, self.wishes.profile)
        if most is not None and 0 < most < outputs:
            yield split_rows(outputs, -(-outputs // -(-outputs // most)))  # as many as are needed, of one size

    def _chain(self, nodes: Sequence[str]) -> None:
        """Add a run of layers and bounded ReLUs, with as few digits for a linear last layer as the tolerance allows."""
        x = self.ranges[self.graph[nodes[0]].inputs[0]]
        ends_linear = isinstance(self.graph[nodes[-1]].op, FullyConnectedOp)
        asked = None if self.wishes.precision is None else encoding_of(self.wishes.precision)
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
            placements = _placements([job], profile)
        except ResourceError as error:
            first, _, hint = str(error).partition("\nhint: ")
            return self._refuse(job.nodes, Verdict(first.splitlines()[0], fix=hint))
        # The steps of a sequence wait for each other: a call each.
        calls = job.positions if isinstance(self.graph[job.nodes[0]].op, RecurrentSequence) else 1
        device = costs.programs_cost(job.programs, profile, batch * job.positions // calls) * calls
        share = share_cost(host, job, self.graph, batch)
        software = Cost.total(op_cost(host, self.graph[name], self.graph, batch) for name in job.nodes)
        ops = [node.op for node in self.graph.nodes]
        pushes = sum(isinstance(op, GradientUpdate | MutationUpdate) and op.of in job.nodes for op in ops)
        update, spent = None, device
        if pushes:
            update = Cost.total(costs.update_cost(p.layers[0].weights.nbytes, profile) for p in job.programs)
            spent = Cost.total([device, update * pushes])
        whole = Cost.total([spent, share])
        # Without a figure for the host's power its share is left out on both sides.
        compared = spent if self.wishes.objective == "energy" and share.energy is None else whole
        gain = self._gain(job, compared, software)
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

    def _gain(self, job: DeviceJob, spent: Cost, software: Cost) -> tuple[float, ...]:
        """Return what the device saves."""
        objective = self.wishes.objective
        saved = tuple(a - b for a, b in zip(rank(software, objective), rank(spent, objective), strict=True))
        if objective == "hw_only":
            return (float(len(job.nodes)), *saved)
        return (-job.error, *saved) if objective == "accuracy" else saved

    def _positions(self, name: str) -> int:
        """Return the vectors that a sample has for a node: the extents between batch and last axis."""
        return entries(self.graph.shapes[self.graph[name].inputs[0]][:-1])

    def _refuse(self, nodes: Sequence[str], verdict: Verdict) -> bool:
        for name in nodes:
            self.refused[name] = verdict
        return False


def fit_together(jobs: Sequence[DeviceJob], profile: DeviceProfile) -> bool:
    """Return whether the programs of some jobs fit the chip side by side."""
    try:
        _placements(jobs, profile)
    except ResourceError:
        return False
    return True


def _placements(jobs: Sequence[DeviceJob], profile: DeviceProfile) -> list[mesh.Placement]:
    """Return where programs go, side by side; raises `ResourceError` where they do not fit."""
    return mesh.side_by_side([program for job in loading_order(jobs) for program in job.programs], profile)


def _of_precision(options: Sequence[Option], precision: str) -> Option | Verdict:
    """Return the option of a precision; integers that exist keep their digits."""
    asked = encoding_of(precision)
    same = [o for o in options if o.encoding.activation_bits == asked.activation_bits]
    digits = {o.encoding.digits for o in same}
    return next((o for o in same if o.encoding.digits == asked.digits or len(digits) == 1), Verdict("no such encoding"))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
