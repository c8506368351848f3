"""What a stage is: `init() -> state`, `step(state, item) -> (state, outputs)`, and the same for plain functions.

Outputs are None (nothing), a list or a generator (many), anything else (one); wrap a payload that is itself a list in
`Emit`. A generator makes its next output when there was room for the last one; where it raises, what it made before has
been sent already, and a retry leaves that out. A step (or function) may also take an argument named `ctx`, the
`Context`, and may be a coroutine. Sources have `produce(state)` instead, which returns `(state, outputs)` or `(state,
END)` when there is no more; a source may also have `step`, for control items that come back to it. State is replaced,
not changed: after a step that raises, the old one is still good.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from metalforge.core import (
    Capability,
    EnergyMeter,
    SpecError,
    SubstrateInfo,
    load_plugin,
    plugin_names,
    require_at_least,
    require_not_negative,
    require_positive,
    strangers_code,
)

from .items import Emit, Item
from .lanes import END

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
STAGES = "metalforge.stages"
"""Group of the entry points that name stages."""


class StageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a stage is run, apart from what it computes.

    `buffer_depth` is the capacity of an edge into this stage that does not name its channel. A `droppable` stage may be
    left out when it is too slow: items for it are dropped, and counted, instead of holding up the producer.
    `power_budget_mw` throttles the stage when the rolling mean of its substrate's power is above it.

    `on_error`: `stop` the run; `skip` the item as a dead letter; `retry` it `retries` times with `backoff_s` doubling,
    then do `after_retries`. `timeout_s`: a thread cannot be killed, so a late step is recognised when it returns (look
    at `ctx.cancelled()` in long ones), and one that does not return fails the run a second later and is abandoned;
    coroutines are cancelled and processes killed. `isolation="process"` runs the
    stage in a process of its own, restarted from its last checkpoint (every `checkpoint_every` items) when it dies, at
    most `restarts` times for one item.
    """

    buffer_depth: int = 4
    droppable: bool = False
    power_budget_mw: float | None = None
    on_error: Literal["retry", "skip", "stop"] = "stop"
    retries: int = 3
    after_retries: Literal["skip", "stop"] = "stop"
    backoff_s: float = 0.0
    timeout_s: float | None = None
    isolation: Literal["thread", "process"] = "thread"
    checkpoint_every: int = 16
    restarts: int = 3
    results: bool = True
    """Whether this stage, when nothing follows it, is a sink of results: no droppable stage may lie before it."""

    def __post_init__(self) -> None:
        require_at_least(1, buffer_depth=self.buffer_depth, checkpoint_every=self.checkpoint_every)
        require_at_least(0, retries=self.retries, restarts=self.restarts)
        require_not_negative(backoff_s=self.backoff_s)
        require_positive(timeout_s=self.timeout_s, power_budget_mw=self.power_budget_mw)


@runtime_checkable
class OnSubstrate(Protocol):
    """Silicon as the pipeline sees it: an identity with capabilities, and a meter. Core's `Substrate` is one."""

    @property
    def info(self) -> SubstrateInfo:
        """Identity and capabilities."""
        ...

    def meter(self) -> EnergyMeter:
        """Return the energy meter, readable or not."""
        ...


class Context:
    """What a running step may ask of the runtime: its stage, item and substrate, and whether to end."""

    def __init__(
        self,
        stage: str,
        substrate: OnSubstrate | None,
        *,
        stopping: Callable[[], bool] = lambda: False,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.stage, self.substrate = stage, substrate
        self.item: Item | None = None
        self.deadline_ns: int | None = None
        self._stopping, self.clock_ns = stopping, clock_ns

    def cancelled(self) -> bool:
        """Whether this step should end: the run is stopping, or the step is past its timeout."""
        return self._stopping() or (self.deadline_ns is not None and self.clock_ns() > self.deadline_ns)


class Stage(Generic[In, Out]):
    """A stage with state. Override `step`, and what else you need; the rest has defaults.

    `requires` are capabilities that its substrate must have.
    """

    requires: ClassVar[tuple[Capability, ...]] = ()

    def init(self) -> Any:
        """Return the first state; None for a stage without state."""
        return None

    def step(self, state: Any, item: In) -> tuple[Any, Any]:
        """Return the next state and the outputs made from one item."""
        raise TypeError(f"{type(self).__name__} has no step: it takes no items")

    def finish(self, state: Any) -> Any:
        """Return last outputs, when all input has ended."""
        return None

    def configure(self, state: Any, config: Any) -> Any:
        """Return the state after `send_config(stage, config)`."""
        raise TypeError(f"{type(self).__name__} has no configure: it takes no configuration")

    def state(self, state: Any) -> Any:
        """Return the state as plain data (numbers, text, bytes, lists, tuples, dicts, arrays) for a checkpoint."""
        return state

    def restore(self, saved: Any) -> Any:
        """Return the state that `state` was called with."""
        return saved

    def bind(self, substrate: OnSubstrate | None) -> None:
        """Take the substrate this stage will run on: called before `init` or `restore`, again after a migration."""

    def close(self) -> None:
        """Give back what `bind` or `init` opened."""


class Source(Stage[Any, Out]):
    """A stage that makes items by itself; override `produce`."""

    def produce(self, state: Any) -> tuple[Any, Any]:
        """Return the next state and outputs; outputs are `END` when there is no more."""
        raise TypeError(f"{type(self).__name__} has no produce")


class FunctionStage(Stage[Any, Any]):
    """A plain function of one item (and the context, if it has an argument `ctx`) as a stage without state."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._context = takes_context(function)
        self.is_async = inspect.iscoroutinefunction(function)

    def step(self, state: Any, item: Any, ctx: Any = None) -> Any:
        """Call the function; a coroutine function's coroutine is wrapped so that it returns (state, outputs)."""
        made = self.function(item, ctx) if self._context else self.function(item)
        return _with_state(state, made) if self.is_async else (state, made)

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


async def _with_state(state: Any, made: Any) -> tuple[Any, Any]:
    return state, await made


class IterableSource(Source[Any]):
    """A source over an iterable, or over a function that returns a fresh one.

    The state is how many were taken, so that a source over a function can be restored by skipping.
    """

    def __init__(self, items: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self.items = items
        self._iterator: Iterator[Any] | None = None
        self._at = 0

    def init(self) -> int:
        """Start from the beginning."""
        self._iterator, self._at = None, 0
        return 0

    def produce(self, state: int) -> tuple[int, Any]:
        """Return the next item of the iterable."""
        if self._iterator is None or self._at != state:
            self._iterator = iter(self.items() if callable(self.items) else self.items)
            for _ in range(state):
                next(self._iterator, None)
        for payload in self._iterator:
            self._at = state + 1
            return state + 1, Emit(payload) if not isinstance(payload, Emit) else payload
        return state, END


class Collect(Stage[Any, Any]):
    """A sink that keeps what it gets: `payloads`, and the envelopes in `items`, in the order of arrival."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    @property
    def payloads(self) -> list[Any]:
        """What arrived so far."""
        return [item.payload for item in self.items]

    def step(self, state: Any, item: Any, ctx: Any = None) -> tuple[Any, Any]:
        """Keep the envelope."""
        self.items.append(ctx.item)
        return state, None


def as_stage(impl: Any) -> Stage[Any, Any]:
    """Return `impl` as a stage: a stage is itself, a function or an iterable is wrapped."""
    if isinstance(impl, Stage):
        return impl
    if isinstance(impl, type):
        raise SpecError(f"a stage must be an object, not a class: pass {impl.__name__}(...)")
    if inspect.isgeneratorfunction(impl) and not _takes(impl, 1):
        return IterableSource(impl)
    if callable(impl):
        if _takes(impl, 0) and not _takes(impl, 1):
            return IterableSource(impl)
        return FunctionStage(impl)
    if isinstance(impl, Iterable) and not isinstance(impl, str | bytes | Mapping):
        return IterableSource(impl)
    raise SpecError(f"a stage must be a Stage, a function, or an iterable as a source. Got {impl!r}")


def resolve_stage(impl: Any, parameters: Mapping[str, Any] | None) -> Stage[Any, Any]:
    """Return a stage: the one that a text names, made with the parameters, or `impl` itself."""
    if not isinstance(impl, str):
        if parameters:
            raise SpecError("`parameters` are for a stage given by name; pass the stage as it is")
        return as_stage(impl)
    if ":" in impl:
        module, _, attribute = impl.partition(":")
        with strangers_code(f"stage `{impl}` cannot be loaded"):
            found = attrgetter(attribute)(import_module(module))
    elif impl in (registered := plugin_names(STAGES)):
        found = load_plugin(STAGES, impl)
    else:
        known = ", ".join(registered) or "none"
        raise SpecError(f"`{impl}` is neither `module:attribute` nor a registered stage; registered: {known}")
    with strangers_code(f"stage `{impl}` does not take the parameters {dict(parameters or {})}"):
        if isinstance(found, type) or parameters:
            found = found(**(parameters or {}))
    return as_stage(found)


def takes_context(step: Callable[..., Any]) -> bool:
    """Whether a step or function has an argument named `ctx` for the context."""
    try:
        return "ctx" in inspect.signature(step).parameters
    except ValueError:  # a built-in without a signature
        return False


def _takes(function: Callable[..., Any], n_arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*(None,) * n_arguments)
    except TypeError:
        return False
    except ValueError:  # built-in without a signature: one argument is the common case
        return n_arguments == 1
    return True


def outputs_of(made: Any) -> list[Any]:
    """Return the outputs of a step that is no generator as a list: none, one, or many."""
    if made is None:
        return []
    return made if isinstance(made, list) else [made]
