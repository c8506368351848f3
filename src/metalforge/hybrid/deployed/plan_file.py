"""A plan as data: its graph, its compiled jobs and its record become one JSON value and arrays by name, and back.

Nothing is planned or compiled again when it is read: prices of another machine, or another version's way to quantise,
do not change what a deployed model computes. Records are dataclasses and are written field by field; what is no
plain value is an object with one key that begins with `%`. Equal objects that are shared are written once.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from scipy.sparse import csr_array

from metalforge.core import Array, FeatureSchema, HeadLayout, SpecError, find
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.onnx_import.host import HostPart
from metalforge.hybrid.routing.jobs import ChainJob, DeviceJob, LinearJob
from metalforge.hybrid.routing.plan import Plan, PlanRecord
from metalforge.reservoir import BlockSparse, EsnWeights, Ranges
from metalforge.substrates import CompiledLinear, Encoding, Ladder, Program, Quantized, wire
from metalforge.substrates import profile as find_profile

Arrays = dict[str, Array]


def _ops(kind: type[ops.Op] = ops.Op) -> list[type]:
    return [one for below in kind.__subclasses__() for one in (below, *_ops(below))]


_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *_ops(),
        OpGraph,
        Node,
        LinearJob,
        ChainJob,
        CompiledLinear,
        Ladder,
        Encoding,
        Quantized,
        EsnWeights,
        Ranges,
        BlockSparse,
    )
}
_STRUCTS: dict[str, type[msgspec.Struct]] = {"FeatureSchema": FeatureSchema, "HeadLayout": HeadLayout}
_NARROW = (np.int8, np.int16, np.int32)


def frozen(plan: Plan) -> tuple[Any, Arrays]:
    """Return a plan as a JSON value and arrays by name."""
    writer = _Writer()
    found = {"graph": writer.value(plan.graph), "jobs": writer.value(plan.jobs)}
    return found | {"record": msgspec.to_builtins(plan.record), "profile": plan.profile.name}, writer.arrays


def thawed(found: Any, arrays: Arrays) -> Plan:
    """Return the plan; raises `SpecError` for what `frozen` did not write."""
    try:
        reader = _Reader(arrays)
        graph, jobs = reader.value(found["graph"]), reader.value(found["jobs"])
        record = msgspec.convert(found["record"], PlanRecord)
        if not isinstance(graph, OpGraph) or not all(isinstance(job, DeviceJob) for job in jobs):
            raise SpecError("a plan is a graph and its jobs")
        for job in jobs:
            _check_job(job, graph)
        return Plan(graph=graph, jobs=jobs, record=record, profile=find_profile(str(found["profile"])))
    except (TypeError, KeyError, AttributeError, IndexError, msgspec.MsgspecError) as error:
        raise SpecError(f"no plan can be made of it ({type(error).__name__}: {error})") from error


def _check_job(job: DeviceJob, graph: OpGraph) -> None:
    """Raise where a job does not fit the nodes that it says it computes."""
    first, last = graph[job.nodes[0]], graph[job.nodes[-1]]
    reads = sum(graph.shapes[value][-1] or 0 for value in first.inputs[:1])
    if isinstance(first.op, ops.RecurrentStep):
        reads += first.op.weights.units
    widths = {name: graph.shapes[graph[name].outputs[0]][-1] for name in job.nodes}
    spans = job.spans if isinstance(job, LinearJob) else {last.name: slice(0, job.programs[0].outputs)}
    fits = all(span.stop - span.start == widths[name] for name, span in spans.items())
    if job.ranges.shape != (reads,) or not fits:
        raise SpecError(f"job `{job.name}` does not fit the nodes {', '.join(job.nodes)}")


@cache
def _hints(record: type) -> dict[str, Any]:
    """Return the types of a record's fields, by name."""
    return get_type_hints(record)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that a field has: a dataclass takes whatever it is given."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if origin is tuple:
        each = inside[:1] * len(value) if isinstance(value, tuple) and inside[-1:] == (...,) else inside
        return isinstance(value, tuple) and len(value) == len(each) and all(map(_fits, value, each))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(k, inside[0]) and _fits(v, inside[1]) for k, v in value.items())
    kind = origin or hint
    if kind is Callable or isinstance(kind, str):
        return callable(value) or isinstance(kind, str)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value in list(kind)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, kind) if isinstance(kind, type) else True


class _Writer:
    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._known: dict[int, tuple[Any, str]] = {}
        """Arrays and programs by identity, each kept so that its identity stays its own."""

    def value(self, given: Any) -> Any:
        match given:
            case None | bool() | int() | float() | str():
                return given.value if isinstance(given, Enum) else given
            case np.generic():
                return given.item()
            case tuple() | list():
                return [self.value(one) for one in given]
            case slice():
                return {"%slice": [given.start, given.stop]}
            case np.ndarray():
                return {"%array": self._kept(given, given), "dtype": given.dtype.str}
            case Program():
                return {"%program": self._kept(given, np.frombuffer(wire.to_bytes(given), np.uint8))}
            case HostPart():
                return {"%onnx": self._kept(given, np.frombuffer(given.model, np.uint8))}
            case csr_array():
                parts = [self.value(part) for part in (given.data, given.indices, given.indptr)]
                return {"%csr": parts, "shape": list(given.shape)}
            case Mapping():
                return {"%map": {key: self.value(one) for key, one in given.items()}}
            case FeatureSchema() | HeadLayout():
                return {"%struct": type(given).__name__, "value": msgspec.to_builtins(given)}
        name = type(given).__name__
        if _RECORDS.get(name) is not type(given) or not is_dataclass(given):
            raise SpecError(f"a {name} cannot be deployed: it is made of code, not of data")
        held = {field.name: self.value(getattr(given, field.name)) for field in fields(given) if field.init}
        return {"%is": name, "fields": held}

    def _kept(self, owner: Any, array: Array) -> str:
        if id(owner) not in self._known:
            name = f"a{len(self._known)}"
            self._known[id(owner)] = owner, name
            self.arrays[name] = _narrowed(array).copy(order="C")
        return self._known[id(owner)][1]


def _narrowed(array: Array) -> Array:
    """Return integers in the narrowest type that holds them: most are those of four bits."""
    if array.dtype != np.int64 or not array.size:
        return array
    low, high = array.min(), array.max()
    return next((array.astype(t) for t in _NARROW if np.iinfo(t).min <= low and high <= np.iinfo(t).max), array)


def _host_part(model: bytes) -> HostPart:
    try:
        return HostPart(model)
    except Exception as error:  # of protobuf and of runtimes, which have types of their own
        raise SpecError(f"holds a part in ONNX that cannot be opened ({error})") from error


class _Reader:
    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._made: dict[str, Any] = {}

    def value(self, given: Any) -> Any:
        if isinstance(given, list):
            return tuple(self.value(one) for one in given)
        if not isinstance(given, dict):
            return given
        held: Any
        kind, held = next(iter(given.items()), ("", None))
        match kind:
            case "%slice":
                start, stop = (int(end) for end in held)
                return slice(start, stop)
            case "%array":
                if (dtype := np.dtype(given["dtype"])).kind not in "biuf":
                    raise SpecError(f"arrays of a plan hold numbers. Got {dtype}")
                return self._arrays[held].astype(dtype, copy=False)
            case "%program":
                return self._once(held, wire.from_bytes)
            case "%onnx":
                return self._once(held, _host_part)
            case "%csr":
                data, indices, starts = (self.value(part) for part in held)
                matrix = csr_array((data, indices, starts), shape=tuple(given["shape"]))
                matrix.check_format(full_check=True)  # products trust their indices
                return matrix
            case "%map":
                return {name: self.value(one) for name, one in held.items()}
            case "%struct":
                return msgspec.convert(given["value"], find("schema", held, _STRUCTS))
            case "%is":
                parts = {name: self.value(one) for name, one in given["fields"].items()}
                made = find("record of a plan", held, _RECORDS)
                hints = _hints(made)
                for name, part in parts.items():
                    if not _fits(part, hints.get(name, Any)):
                        raise SpecError(f"`{name}` of a {held} cannot be {type(part).__name__}")
                return made(**parts)
        raise SpecError(f"`{kind}` is no kind of value")

    def _once(self, name: str, make: Any) -> Any:
        if name not in self._made:
            self._made[name] = make(self._arrays[name].astype(np.uint8, copy=False).tobytes())
        return self._made[name]
