"""Where the code of a stage runs and its state lives: here, in the thread of its worker.

A host has the stage's verbs: open (from the first state or a checkpoint), step (the state advances and the outputs are
returned, or it raises and nothing changed), produce (None at the end of a source), finish, configure,
checkpoint (equal states give equal bytes), close. Another host, in `processes`, has the same verbs and a process
behind them; a worker does not know which it has.
"""

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from metalforge.core import SpecError

from .errors import StageTimeoutError
from .graph import StageSpec
from .items import Item
from .lanes import END
from .stages import Context, outputs_of, takes_context

if TYPE_CHECKING:
    from .processes import ProcessHost

Host: TypeAlias = "LocalHost | ProcessHost"
Outputs: TypeAlias = list[Any] | Iterator[Any]
"""What a step gives: all of it, or what makes one after the other."""


class LocalHost:
    """A stage in this thread."""

    restarts = 0

    def __init__(self, spec: StageSpec, context: Context) -> None:
        self.spec, self.stage, self.context, self._clock_ns = spec, spec.stage, context, context.clock_ns
        self.state: Any = None
        step: Any = self.stage.step
        produce: Any = getattr(self.stage, "produce", None)
        self._is_async = inspect.iscoroutinefunction(step) or getattr(self.stage, "is_async", False)
        self._step: Callable[..., Any] = partial(step, ctx=context) if takes_context(step) else step
        self._produce: Any = partial(produce, ctx=context) if produce and takes_context(produce) else produce
        self._runner: asyncio.Runner | None = None

    def open(self, saved: bytes | None = None) -> None:
        """Bind the substrate, then make or restore the state."""
        self.stage.bind(self.context.substrate)
        if saved is None:
            self.state = self.stage.init()
        else:
            self.state = self.stage.restore(decode_state(saved))

    def step(self, item: Item) -> Outputs:
        """Call `step`; a state is kept only when the step returned, in time, and its generator has ended."""
        self.context.item = item
        if self._is_async or self.spec.config.timeout_s is not None:
            return self._kept(*self._in_time(self._awaited if self._is_async else self._step, self.state, item.payload))
        state, made = self._step(self.state, item.payload)  # the common case, without a call more than it needs
        return self._kept(state, made)

    def produce(self) -> Outputs | None:
        """Call `produce`."""
        self.context.item = None
        state, made = self._in_time(self._produce, self.state)
        if made is END:
            self.state = state
            return None
        return self._kept(state, made)

    def _in_time(self, work: Callable[..., Any], *arguments: Any, spent_ns: int = 0) -> Any:
        """Return what `work` gives; raises when that, with the time spent before, took longer than the stage may."""
        timeout_s = self.spec.config.timeout_s
        if timeout_s is None:
            return work(*arguments)
        self.context.deadline_ns = deadline_ns = self._clock_ns() + int(timeout_s * 1e9) - spent_ns
        try:
            made = work(*arguments)
        finally:
            self.context.deadline_ns = None
        if self._clock_ns() > deadline_ns:
            raise StageTimeoutError(f"a step of stage `{self.spec.name}` took longer than {timeout_s} s")
        return made

    def _kept(self, state: Any, made: Any) -> Outputs:
        """Keep the state and return the outputs: a list, or a generator at whose end the state is kept."""
        if type(made) is GeneratorType:
            return self._stream(state, made)
        self.state = state
        return outputs_of(made)

    def _stream(self, state: Any, made: Iterator[Any]) -> Iterator[Any]:
        """Yield what a generator makes, one at a time; only the time inside it counts."""
        spent_ns = 0
        while True:
            began = self._clock_ns()
            output = self._in_time(next, made, END, spent_ns=spent_ns)
            spent_ns += self._clock_ns() - began
            if output is END:
                break
            yield output
        self.state = state

    def _awaited(self, state: Any, payload: Any) -> Any:
        """Run a step's coroutine to its end; one that takes too long is cancelled."""
        timeout_s = self.spec.config.timeout_s
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def bounded() -> Any:
            async with asyncio.timeout(timeout_s):
                return await self._step(state, payload)

        try:
            return self._runner.run(bounded())
        except TimeoutError as late:
            raise StageTimeoutError(f"a step of stage `{self.spec.name}` was cancelled after {timeout_s} s") from late

    def finish(self) -> Outputs:
        """Call `finish`."""
        return self._kept(self.state, self.stage.finish(self.state))

    def configure(self, config: Any) -> None:
        """Call `configure`."""
        self.state = self.stage.configure(self.state, config)

    def checkpoint(self) -> bytes:
        """Return the state as bytes."""
        return encode_state(self.stage.state(self.state))

    def close(self) -> None:
        """Close the stage and its event loop."""
        try:
            if self._runner is not None:
                self._runner.close()
        finally:
            self.stage.close()


class StageServer:
    """A local host far from its worker: the verbs and their arguments come over a wire."""

    def __init__(self) -> None:
        self._host: LocalHost | None = None

    def do(self, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Do one verb of the stage; `open` comes first and returns the process's id."""
        if verb == "open":
            spec, saved = arguments
            self._host = LocalHost(spec, Context(spec.name, spec.silicon))
            self._host.open(saved)
            return os.getpid()
        assert self._host is not None
        result = getattr(self._host, verb)(*arguments)
        # what a step makes crosses the wire at once
        return list(result) if isinstance(result, GeneratorType) else result

    def close(self) -> None:
        """Close the stage, if it was opened."""
        if self._host is not None:
            self._host.close()


# -- state as bytes -----------------------------------------------------------------------------------------------

_ARRAY, _TUPLE, _BIG, _COMPLEX = 1, 2, 3, 4


def encode_state(state: Any) -> bytes:
    """Return the bytes of a state in MessagePack: equal states give equal bytes, arrays keep type, shape and every bit.

    Not pickle: a checkpoint is data, and reading one runs no code.
    """
    return msgspec.msgpack.encode(_plain(state, "state"))


def decode_state(data: bytes) -> Any:
    """Return the state that `encode_state` got."""
    return msgspec.msgpack.decode(data, ext_hook=_from_extension)


def _plain(value: Any, where: str) -> Any:
    match value:
        case None | bool() | float() | str() | bytes():
            return value
        case int():
            if -(1 << 63) <= value < 1 << 64:
                return value
            return msgspec.msgpack.Ext(_BIG, str(value).encode())
        case complex():
            return msgspec.msgpack.Ext(_COMPLEX, msgspec.msgpack.encode((value.real, value.imag)))
        case list():
            return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
        case tuple():
            parts = [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
            return msgspec.msgpack.Ext(_TUPLE, msgspec.msgpack.encode(parts))
        case dict():
            return {k: _plain(v, f"{where}[{k!r}]") for k, v in value.items()}
        case np.ndarray():
            if value.dtype.hasobject:
                raise SpecError(f"{where} is an array of objects, which has no bytes of its own")
            head = (value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes())
            return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(head))
        case np.generic():
            return _plain(np.asarray(value), where)
    raise SpecError(
        f"{where} is a {type(value).__name__}: a checkpoint holds numbers, text, bytes, lists, tuples, dicts and arrays"
        "\nhint: give the stage `state(state)` and `restore(saved)`, which turn it into those and back"
    )


def _from_extension(code: int, data: memoryview) -> Any:
    if code == _BIG:
        return int(bytes(data))
    if code == _COMPLEX:
        return complex(*msgspec.msgpack.decode(data))
    if code == _TUPLE:
        return tuple(msgspec.msgpack.decode(data, ext_hook=_from_extension))
    dtype, shape, content = msgspec.msgpack.decode(data)
    return np.frombuffer(bytearray(content), dtype=np.dtype(dtype)).reshape(shape)
