"""What `build` refuses, each reason in words: names, ports, types, capabilities, predicates, cycles, lost results.

Why an accepted graph cannot deadlock. A stage waits for two things only: an item in its one inbox, or room on one
outgoing edge. Waiting for room on a -> b means that b has something in its inbox, so b waits for nothing or for room
itself; following these waits along edges that can block must end, because every cycle has an edge that cannot. So some
stage can always go on. Cycles with a token budget are the exception, with their own bound: at most `tokens` items are
inside, fewer than fill all queues of the cycle, so some edge of it has room.
"""

import inspect
import types
import typing
import warnings
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar, Union

from metalforge.core import MetalforgeError, missing_capabilities

from .errors import GraphError
from .graph import Edge, PipelineGraph, StageSpec, components
from .items import Emit, field_names
from .kinds import Bounded, Filtered
from .stages import FunctionStage, IterableSource, Source, Stage


def check(graph: PipelineGraph) -> None:
    """Raise `GraphError` with every problem of a graph; warn of a power budget that nothing enforces."""
    if found := list(problems(graph)):
        raise GraphError(found)
    for spec in graph.stages.values():
        if spec.config.power_budget_mw is None:
            continue
        silicon = spec.silicon
        if reason := silicon.meter().unavailable() if silicon else "it is bound to no substrate with a meter":
            warnings.warn(f"the power budget of stage `{spec.name}` is not enforced: {reason}", stacklevel=3)


def problems(graph: PipelineGraph) -> Iterator[str]:
    """Yield what is wrong with a graph; nothing for one that can run."""
    if not graph.stages:
        yield "there is no stage"
        return
    names = list(_names(graph))
    yield from names
    if names:  # the rest would speak of stages that do not exist
        return
    graph = graph.resolved()
    yield from _ports(graph)
    yield from _types(graph)
    yield from _stages(graph)
    yield from _cycles(graph)
    yield from _losses(graph)


def _names(graph: PipelineGraph) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for name in graph.stages:
        if not name or not all(c.isalnum() or c in "_-." for c in name):
            yield f"stage name `{name}` must be letters, digits, `_`, `-` and `.`"
    for edge in graph.edges:
        for end in edge.ends:
            if end not in graph.stages:
                yield f"edge {edge} names stage `{end}`, which does not exist; known: {', '.join(graph.stages)}"
        if edge.ends in seen:
            yield f"edge {edge} is there twice; one edge joins two stages"
        seen.add(edge.ends)


def _ports(graph: PipelineGraph) -> Iterator[str]:
    fed = {e.target for e in graph.edges}
    sources = [name for name, spec in graph.stages.items() if isinstance(spec.stage, Source)]
    feeding = {e.source for e in graph.edges}
    for name, spec in graph.stages.items():
        gives = item_types(spec.stage)[1]
        has_step = not isinstance(spec.stage, Source) or type(spec.stage).step is not Stage.step
        if name not in fed and name not in sources:
            yield f"stage `{name}` has no edge into it and is no source: its input dangles"
        elif name not in sources and not any(_way(graph.edges, source, {name}) for source in sources):
            yield f"stage `{name}` is reached by no source: it would wait for ever, and the run with it"
        if name in fed and not has_step:
            yield f"source `{name}` has an edge into it and no `step` to take items with"
        if name not in feeding and gives not in (None,) and isinstance(spec.stage, Source):
            yield f"source `{name}` has no edge out of it: its output dangles"
        if name in feeding and gives is None:
            yield f"stage `{name}` has an edge out of it and gives nothing (its outputs are annotated None)"


def _types(graph: PipelineGraph) -> Iterator[str]:
    for edge in graph.edges:
        source, target = graph.stages[edge.source], graph.stages[edge.target]
        gives, takes = item_types(source.stage)[1], item_types(target.stage)[0]
        if gives is not None and takes is not None and not accepts(takes, gives):
            yield (f"edge {edge}: `{edge.source}` gives {type_name(gives)}, `{edge.target}` takes {type_name(takes)}")
        if isinstance(edge.channel, Filtered) and isinstance(edge.channel.where, str):
            yield from _predicate(edge, edge.channel.where, gives)


def _predicate(edge: Edge, text: str, gives: object) -> Iterator[str]:
    from .expressions import Expression

    fields = header_fields(gives)
    try:
        expression = Expression(text)
        if fields is None:
            yield (
                f"edge {edge}: the fields of predicate `{text}` cannot be checked, because the outputs of "
                f"`{edge.source}` ({type_name(gives)}) declare none; annotate it with a dataclass, struct or named "
                "tuple, or pass a callable"
            )
        else:
            expression.check(fields)
    except MetalforgeError as error:
        yield f"edge {edge}: {error}"


def _stages(graph: PipelineGraph) -> Iterator[str]:
    for name, spec in graph.stages.items():
        if spec.config.droppable and isinstance(spec.stage, Source):
            yield f"source `{name}` cannot be droppable: nothing is sent to it"
        if lacks := lacking(spec):
            yield lacks


def lacking(spec: StageSpec) -> str:
    """Return what the substrate of a stage does not have and the stage needs, in words; empty where it has all."""
    has = spec.silicon.info.capabilities if spec.silicon else ()
    missing = missing_capabilities(has, spec.stage.requires) if spec.silicon else ()
    labels = ", ".join(c.label for c in missing)
    return labels and f"stage `{spec.name}` needs {labels}, which substrate `{spec.substrate_name}` does not have"


def _blocks(graph: PipelineGraph, edge: Edge) -> bool:
    assert edge.channel is not None
    return edge.channel.blocks and not graph.stages[edge.target].config.droppable


def _cycles(graph: PipelineGraph) -> Iterator[str]:
    """Every cycle needs an edge that never blocks; without these edges the graph must have no cycle left."""
    blocking = [e for e in graph.edges if _blocks(graph, e)]
    for members in components(graph.stages, [e.ends for e in blocking]):
        inside = [e for e in blocking if e.source in members and e.target in members]
        if not inside:
            continue
        budgets = [e.tokens for e in inside if e.tokens is not None]
        if not budgets:
            yield (
                "a cycle in which every edge can block will deadlock when its queues are full:\n"
                f"{draw_cycle(cycle_of(inside), graph)}\n"
                "  hint: make the edge that closes it Latest() (control), declare a droppable stage, or tokens=n"
            )
            continue
        yield from _budget(graph, members, inside, budgets)


def _budget(graph: PipelineGraph, members: tuple[str, ...], inside: list[Edge], budgets: list[int]) -> Iterator[str]:
    where = f"cycle {' -> '.join(cycle_of(inside))}"
    if len(budgets) > 1:
        yield f"{where} has {len(budgets)} token budgets; declare one"
    if len(inside) != len(members):
        yield f"{where} branches inside: a token budget is for a single ring, every stage with one edge in it"
    capacity = sum(e.channel.room for e in inside if e.channel is not None)
    if not 1 <= budgets[0] <= capacity:
        yield f"{where}: `tokens` must be 1 to {capacity}, what its queues hold. Got {budgets[0]}"
    if any(isinstance(e.channel, Bounded) and e.channel.max_bytes is not None for e in inside):
        yield f"{where} has a limit in bytes: a token budget counts items only"
    others = [e for e in graph.edges if e.source in members and e.target in members and e not in inside]
    if others:
        yield f"{where} also has edges that never block ({others[0]}): leave the token budget out"


def cycle_of(edges: list[Edge]) -> list[str]:
    """Return one shortest cycle through `edges`, as stages with the first one repeated at the end."""
    found = [path for start in dict.fromkeys(e.source for e in edges) if (path := _way(edges, start, {start}))]
    return min(found, key=len)


def _way(edges: Sequence[Edge], start: str, goals: Collection[str]) -> list[str]:
    """Return a shortest way of at least one edge from `start` to one of `goals`; empty where there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:  # which grows meanwhile: the shortest come first
        if len(way) > 1 and way[-1] in goals:
            return way
        after = [e.target for e in edges if e.source == way[-1] and e.target not in seen]
        seen.update(after)
        ways += [[*way, stage] for stage in dict.fromkeys(after)]
    return []


def draw_cycle(cycle: list[str], graph: PipelineGraph) -> str:
    """Return a cycle as a drawing: each edge with its channel, and the way back."""
    kinds = {e.ends: str(e.channel) for e in graph.edges}
    parts = [cycle[0]]
    for a, b in pairwise(cycle):
        parts += [f" --{kinds.get((a, b), '')}--> ", b]
    line = "".join(parts[:-1])
    back = max(0, len(line) - 2)
    return (
        f"    {line}{cycle[0]}\n    ^{' ' * back}|\n    +{'-' * back}+" if len(cycle) > 2 else f"    {line}{cycle[0]}"
    )


def _losses(graph: PipelineGraph) -> Iterator[str]:
    """A droppable stage must not lie before a sink of results."""
    feeding = {e.source for e in graph.edges}
    sinks = [n for n, s in graph.stages.items() if n not in feeding and s.config.results and not s.config.droppable]
    for name, spec in graph.stages.items():
        if spec.config.droppable and (way := _way(graph.edges, name, sinks)):
            yield (
                f"stage `{name}` is droppable and lies before the results in `{way[-1]}`: "
                f"{' -> '.join(way)}; what it drops would be missing there without a word"
                f"\n  hint: StageConfig(results=False) for `{way[-1]}` says that it may miss items"
            )


# -- types of items, from annotations -----------------------------------------------------------------------------

_MANY = {list, Iterable, Iterator, Generator, AsyncIterator}


def item_types(stage: Stage[Any, Any]) -> tuple[Any, Any]:
    """Return the types (in, out) of a stage; `Any` where nothing is said, None for a stage without outputs."""
    if isinstance(stage, FunctionStage):
        return _of_function(stage.function)
    if isinstance(stage, IterableSource):
        return None, (_of_function(stage.items)[1] if callable(stage.items) else Any)
    declared = _of_bases(type(stage))
    by_methods = _of_methods(type(stage))
    takes, gives = (by_methods[i] if declared[i] is Any else declared[i] for i in (0, 1))
    return takes, gives


def _of_bases(kind: type) -> tuple[Any, Any]:
    """Return the arguments of `Stage[In, Out]` or `Source[Out]` among the bases."""
    for cls in kind.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            origin, arguments = typing.get_origin(base), typing.get_args(base)
            known = tuple(Any if isinstance(a, TypeVar) else a for a in arguments)
            if origin is Stage:
                return known[0], known[1]
            if origin is Source and cls is not Source:
                return Any, known[0]
    return Any, Any


def _of_methods(kind: type) -> tuple[Any, Any]:
    takes, gives = Any, Any
    step, produce = getattr(kind, "step", None), getattr(kind, "produce", None)
    if step is not None and step is not Stage.step:
        arguments, result = _signature(step)  # self, state, item
        takes, gives = arguments[2] if len(arguments) > 2 else Any, _of_result(result)
    if gives is Any and produce is not None and produce is not Source.produce:
        gives = _of_result(_signature(produce)[1])
    return takes, gives


def _of_result(result: Any) -> Any:
    """Return the item type of `tuple[State, Outputs]`."""
    arguments = typing.get_args(result)
    return _outputs(arguments[1]) if typing.get_origin(result) is tuple and len(arguments) == 2 else Any


def _of_function(function: Any) -> tuple[Any, Any]:
    routine = inspect.isroutine(function)
    arguments, result = _signature(function if routine else getattr(function, "__call__", function))  # noqa: B004
    return (arguments[0] if arguments else None), _outputs(result)


def _signature(function: Any) -> tuple[list[Any], Any]:
    """Return the types of a callable's arguments but `ctx`, and of its result; `Any` where nothing is said."""
    try:
        names = [name for name in inspect.signature(function).parameters if name != "ctx"]
    except (TypeError, ValueError):  # of C
        names = []
    hints = _hints(function)
    return [hints.get(name, Any) for name in names], hints.get("return", Any)


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name only for type checkers, or an object without annotations
        return {}


def _outputs(annotation: Any) -> Any:
    """Return the type of one output: of `X | None` X, of `list[X]` and iterators X, of None nothing."""
    if annotation is None or annotation is type(None):
        return None
    if annotation is Emit:
        return Any
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Awaitable, Coroutine):
        return _outputs(arguments[-1])
    if origin in _MANY and arguments:
        return _outputs(arguments[0])
    if origin in (Union, types.UnionType):
        left = tuple(_outputs(a) for a in arguments if a is not type(None))
        if any(a is Any for a in left):
            return Any
        return left[0] if len(left) == 1 else Union[left]  # noqa: UP007 - made from a tuple
    if annotation in _MANY or isinstance(annotation, TypeVar):
        return Any
    return annotation


def accepts(takes: Any, gives: Any) -> bool:
    """Whether every item of type `gives` is one that a stage taking `takes` may get; what is not said fits."""
    if takes is Any or gives is Any or takes is object or isinstance(takes, TypeVar) or isinstance(gives, TypeVar):
        return True
    if takes is None or gives is None:
        return False
    if typing.get_origin(gives) in (Union, types.UnionType):
        return all(accepts(takes, part) for part in typing.get_args(gives))
    if typing.get_origin(takes) in (Union, types.UnionType):
        return any(accepts(part, gives) for part in typing.get_args(takes))
    have, want = typing.get_origin(gives) or gives, typing.get_origin(takes) or takes
    if want is float and have is int:  # as PEP 484 has it
        return True
    try:
        return issubclass(have, want)
    except TypeError:  # a protocol with data members, a NewType: only equality can be checked
        return bool(have == want)


def header_fields(kind: Any) -> dict[str, type] | None:
    """Return the named fields of an item type with their types; None when it has no declared fields."""
    if not isinstance(kind, type):
        return None
    names, hints = field_names(kind), _hints(kind)
    return None if names is None else {name: hints.get(name, object) for name in names}


def type_name(kind: Any) -> str:
    """Return a type as a reader writes it."""
    if kind is None:
        return "nothing"
    return kind.__qualname__ if isinstance(kind, type) else str(kind).replace("typing.", "")
