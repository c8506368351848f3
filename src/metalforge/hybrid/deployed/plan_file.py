"""A plan as data: its graph, its record, and the programs of its jobs as they are on the chip, and back.

Nothing is planned or compiled again when it is read: prices of another machine, or another version's way to quantise,
do not change what a deployed model computes. Numbers are arrays by name beside the record. An op is an object with its
class for a key. A field of it that is no plain value is an object too: an `array`, `integers`, a `network` (a weights
file) or a part of a model in `onnx`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from tempfile import NamedTemporaryFile
from types import NoneType, UnionType
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from metalforge.core import Array, MetalforgeError, SpecError, find
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.onnx_import.host import HostPart
from metalforge.hybrid.routing.jobs import ChainJob, DeviceJob, LinearJob, one_after_another
from metalforge.hybrid.routing.plan import Plan, PlanRecord
from metalforge.reservoir import EsnWeights, tensors
from metalforge.substrates import Quantized, joined, wire
from metalforge.substrates import profile as find_profile

Arrays = dict[str, Array]


def _ops(kind: type[ops.Op] = ops.Op) -> list[type[ops.Op]]:
    return [one for below in kind.__subclasses__() for one in (below, *_ops(below))]


OPS = {kind.__name__: kind for kind in _ops()}


class _Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Blocks of programs, which are arrays by name, as the bound and the offset of a chain are."""

    nodes: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    error: float
    error_bound: str
    beyond: int
    offset: str | None = None


class StoredPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan without its arrays."""

    profile: str
    graph: dict[str, Any]
    jobs: tuple[_Job, ...]
    record: PlanRecord


def frozen(plan: Plan) -> tuple[StoredPlan, Arrays]:
    """Return a plan as a record and arrays by name."""
    writer = _Writer()
    graph, jobs = writer.value(plan.graph), tuple(map(writer.job, plan.jobs))
    return StoredPlan(profile=plan.profile.name, graph=graph, jobs=jobs, record=plan.record), writer.arrays


def thawed(stored: StoredPlan, arrays: Arrays) -> Plan:
    """Return the plan; raises `SpecError` for what `frozen` did not write."""
    reader = _Reader(arrays)
    try:
        graph = msgspec.convert(stored.graph, OpGraph, dec_hook=reader.op)
        jobs = tuple(reader.job(job, graph) for job in stored.jobs)
        return Plan(graph=graph, jobs=jobs, record=stored.record, profile=find_profile(stored.profile))
    except MetalforgeError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, msgspec.MsgspecError) as error:
        raise SpecError(f"no plan can be made of it ({type(error).__name__}: {error})") from error


def _plain(given: Any) -> Any:
    """Return a scalar of NumPy or a mapping as JSON has it."""
    match given:
        case np.generic():
            return given.item()
        case Mapping():
            return dict(given)
    return _not_data(given)


def _not_data(given: Any) -> NoReturn:
    raise SpecError(f"a {type(given).__name__} cannot be deployed: it is made of code, not of data")


class _Writer:
    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def job(self, job: DeviceJob) -> _Job:
        blocks = [block.programs for block in job.blocks] if isinstance(job, LinearJob) else [job.programs]
        return _Job(
            nodes=job.nodes,
            blocks=tuple(tuple(self._bytes(wire.to_bytes(program)) for program in block) for block in blocks),
            error=job.error,
            error_bound=self._array(job.error_bound),
            beyond=job.beyond,
            offset=self._array(job.offset) if isinstance(job, ChainJob) else None,
        )

    def value(self, given: Any) -> Any:
        match given:
            case OpGraph() | Node():
                return self._fields(given)
            case ops.Op():
                return {type(given).__name__: self._fields(given)}
            case np.ndarray():
                return {"array": self._array(given)}
            case Quantized():
                return {"integers": self._fields(given)}
            case EsnWeights():
                return {"network": self._bytes(tensors.encode(given))}
            case HostPart():
                return {"onnx": self._bytes(given.model)}
            case tuple():
                return [self.value(one) for one in given]
        return _not_data(given) if callable(given) else msgspec.to_builtins(given, enc_hook=_plain)

    def _fields(self, record: Any) -> dict[str, Any]:
        return {field.name: self.value(getattr(record, field.name)) for field in fields(record)}

    def _bytes(self, data: bytes) -> str:
        return self._array(np.frombuffer(data, np.uint8))

    def _array(self, array: Array) -> str:
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array.copy(order="C")
        return name


class _Reader:
    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def job(self, job: _Job, graph: OpGraph) -> DeviceJob:
        """Return a job; raises `SpecError` where it does not fit the nodes that it says it computes."""
        first, widths = graph[job.nodes[0]], [graph.shapes[graph[name].outputs[0]][-1] or 0 for name in job.nodes]
        *rest, reads = graph.shapes[first.inputs[0]]
        if isinstance(first.op, ops.RecurrentStep):
            reads = (reads or 0) + first.op.weights.units
        bound = self._arrays[job.error_bound]
        common: dict[str, Any] = {"error": job.error, "beyond": job.beyond, "positions": ops.entries(tuple(rest))}
        blocks = [[wire.from_bytes(self._bytes(name)) for name in block] for block in job.blocks]
        gives = sum(block[0].outputs for block in blocks)
        made: DeviceJob | None = None
        if job.offset is None and gives == sum(widths):
            spans = dict(zip(job.nodes, one_after_another(widths), strict=True))
            made = replace(LinearJob.of(list(map(joined, blocks)), spans, **common), error_bound=bound)
        elif job.offset is not None and gives == widths[-1] and self._arrays[job.offset].shape == (gives,):
            [[program]] = blocks
            if program.encoding.activation_bits == 4:
                made = ChainJob.of(program, job.nodes, self._arrays[job.offset], error_bound=bound, **common)
        if made is None or made.ranges.shape != (reads,):
            raise SpecError(f"a job does not fit the nodes {', '.join(job.nodes)}")
        return made

    def op(self, _: type, given: Any) -> ops.Op:
        """Return an op."""
        [(name, held)] = given.items()
        kind = find("op", name, OPS)
        hints = get_type_hints(kind)
        return kind(**{field: self._value(field, hints[field], value) for field, value in held.items()})

    def _value(self, name: str, hint: Any, given: Any) -> Any:
        """Return the value of a field of this type."""
        kinds: Sequence[Any] = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if isinstance(given, dict):
            found = self._special(given)
            if not any(isinstance(found, get_origin(kind) or kind) for kind in kinds):
                raise SpecError(f"`{name}` of an op cannot be {type(found).__name__}")
            return found
        return None if given is None and NoneType in kinds else msgspec.convert(given, hint)

    def _special(self, given: Any) -> Any:
        match given:
            case {"array": name}:
                return self._arrays[name]
            case {"integers": {"limits": limits, **parts}}:
                arrays: dict[str, Any] = {str(part): self._special(held) for part, held in parts.items()}
                return Quantized(limits=msgspec.convert(limits, tuple[int, int]), **arrays)
            case {"network": name}:
                with NamedTemporaryFile(suffix=".safetensors") as file:  # such files are read by path
                    file.write(self._bytes(name))
                    file.flush()
                    return tensors.read(file.name)
            case {"onnx": name}:
                try:
                    return HostPart(self._bytes(name))
                except Exception as error:  # of protobuf and of runtimes, which have types of their own
                    raise SpecError(f"holds a part in ONNX that cannot be opened ({error})") from error
        raise SpecError(f"`{next(iter(given), '')}` is no kind of value")

    def _bytes(self, name: str) -> bytes:
        return self._arrays[name].astype(np.uint8, copy=False).tobytes()
