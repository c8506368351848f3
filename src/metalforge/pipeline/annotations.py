"""What a stage takes and gives, read from its annotations; whether one fits the other; and which fields a type has."""

import inspect
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator
from typing import Any, TypeVar, Union

from .items import Emit, field_names
from .stages import FunctionStage, IterableSource, Source, Stage

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
