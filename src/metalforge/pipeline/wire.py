"""Objects over a socket between a process and a child it started; large arrays by shared memory.

An array of `SHARED_BYTES` or more is copied once, into anonymous shared memory whose descriptor travels with the
message; the receiver maps it and its arrays lie in the map: no second copy, writable, freed when the last array is
gone. Nothing has a name in the file system, so a killed process leaves nothing behind. The rest is pickled: both ends
are the same program, and nothing of it is stored.
"""

import mmap
import os
import pickle
import socket
import struct
import tempfile
from typing import Any

SHARED_BYTES = 1 << 15  # below this a copy is cheaper than a map
_ALIGN = 64
_HEAD = struct.Struct("<QI")


def send_object(connection: socket.socket, value: Any) -> None:
    """Send one object; raises OSError when the other side is gone."""
    shared: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < SHARED_BYTES:
            return True
        shared.append(view)
        return False

    data = pickle.dumps(value, protocol=5, buffer_callback=keep_inside)
    sizes = struct.pack(f"<{len(shared)}Q", *(view.nbytes for view in shared))
    head = _HEAD.pack(len(data), len(shared))
    if not shared:
        connection.sendall(head + data)
        return
    descriptor = _anonymous_memory()
    try:
        offsets, total = _offsets([view.nbytes for view in shared])
        os.ftruncate(descriptor, total)
        with mmap.mmap(descriptor, total) as memory:
            for view, offset in zip(shared, offsets, strict=True):
                memory[offset : offset + view.nbytes] = view
        socket.send_fds(connection, [head], [descriptor])
    finally:
        os.close(descriptor)
    connection.sendall(sizes + data)


def receive_object(connection: socket.socket) -> Any:
    """Return the next object; raises EOFError when the other side is gone."""
    head, descriptors, _, _ = socket.recv_fds(connection, _HEAD.size, 1)
    try:
        if not head:
            raise EOFError("the connection was closed")
        head += _exactly(connection, _HEAD.size - len(head))
        size, n_shared = _HEAD.unpack(head)
        sizes = struct.unpack(f"<{n_shared}Q", _exactly(connection, 8 * n_shared))
        data = _exactly(connection, size)
        buffers: list[memoryview] = []
        if n_shared:
            offsets, total = _offsets(list(sizes))
            view = memoryview(mmap.mmap(descriptors[0], total))
            buffers = [view[offset : offset + n] for offset, n in zip(offsets, sizes, strict=True)]
        return pickle.loads(data, buffers=buffers)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _offsets(sizes: list[int]) -> tuple[list[int], int]:
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += -(-size // _ALIGN) * _ALIGN
    return offsets, max(at, 1)


def _anonymous_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("metalforge", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # macOS: a file without a name
        return os.dup(file.fileno())


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        n = connection.recv_into(view[at:])
        if n == 0:
            raise EOFError("the connection was closed in the middle of a message")
        at += n
    return bytes(data)
