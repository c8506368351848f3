"""Stage state as bytes and back: numbers, text, bytes, lists, tuples, sets of keys, and arrays, in MessagePack.

Equal states give equal bytes, so that a migration can be checked; arrays keep type, shape and every bit. Not pickle:
a checkpoint is data, and reading one runs no code.
"""

from typing import Any

import msgspec
import numpy as np

from metalforge.core import SpecError

_ARRAY, _TUPLE, _BIG, _COMPLEX = 1, 2, 3, 4


def encode_state(state: Any) -> bytes:
    """Return the bytes of a state."""
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
