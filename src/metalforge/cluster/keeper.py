"""The process that holds a cluster on this machine: `local.start_local` starts it.

One thread starts nodes, answers requests and looks after the raylets: Linux ends them with the thread that started
them (PR_SET_PDEATHSIG, which Ray's starter sets), so it must be the main one.
"""

import importlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from metalforge.core import replacing
from metalforge.pipeline import first_line

from .local import RECORD, SOCKET, ClusterFolder, ClusterRecord, LocalNode
from .marked import RAYLET, kill_all, mark_of, marking

_STORE_BYTES = 80 << 20  # the least that Ray takes; configurations never pass through it
_SERVERS = (RAYLET, "gcs_server")
_LOOK_S, _NODES_S = 30.0, 0.25  # between looks for drivers and actors, and at the servers of nodes
_REQUEST_S = 5.0


class Keeper:
    """Nodes of one cluster, numbered as they came."""

    def __init__(self, place: ClusterFolder, idle_s: float) -> None:
        self._place, self._idle_s = place, idle_s
        self._ray = importlib.import_module("ray.cluster_utils").Cluster()
        self._nodes: dict[int, tuple[Any, LocalNode]] = {}
        self._next = 0
        self._used = time.monotonic()

    def add(self, cores: int) -> int:
        """Start a node, and return its number when it has joined."""
        number, self._next = self._next, self._next + 1
        os.environ.update(marking(self._place.cluster, number))  # what is started from here on inherits it
        common = {"num_cpus": cores, "node_ip_address": "127.0.0.1", "object_store_memory": _STORE_BYTES}
        head = {"include_dashboard": False, "dashboard_host": "127.0.0.1", "no_monitor": True} if number == 0 else {}
        try:
            node = self._ray.add_node(**common, **head, include_log_monitor=False)
        finally:
            _listen(_stop)  # Ray has set its own
        pids = {kind: process.pid for kind, process in node.live_processes()}
        self._nodes[number] = node, LocalNode(number=number, id=node.node_id, pid=pids[RAYLET], cores=cores)
        self.write()
        return number

    def write(self) -> None:
        """Say what there is now."""
        record = ClusterRecord(
            address=self._ray.address,
            keeper=os.getpid(),
            nodes=tuple(known for _, known in self._nodes.values()),
        )
        with replacing(self._place.folder / RECORD) as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=2))

    def keep(self) -> None:
        """Answer requests and look after nodes, until the head is lost or the cluster has been idle for long."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self._place.temporary / SOCKET))  # in a folder that is this user's alone
            server.listen()
            server.settimeout(_NODES_S)
            self._used = time.monotonic()
            threading.Thread(target=self._watch_users, daemon=True).start()
            while 0 in self._nodes and time.monotonic() - self._used < self._idle_s:
                with suppress(TimeoutError):
                    self._answer(server.accept()[0])
                for number, (node, _) in tuple(self._nodes.items()):
                    if any(kind in _SERVERS for kind, _ in node.dead_processes()):
                        self._lost(number)

    def _answer(self, line: socket.socket) -> None:
        """Read a line with the number of cores, add such a node, and answer with its number or the failure."""
        with line, line.makefile() as asked:
            line.settimeout(_REQUEST_S)
            try:
                answer = str(self.add(int(asked.readline())))
            except Exception as error:  # of Ray or of the request: the cluster goes on as it is
                answer = first_line(error)
            self._used = time.monotonic()
            try:
                line.sendall(f"{answer}\n".encode())  # unbuffered: nothing is left to be sent at the end
            except OSError as error:
                print(f"the process that asked for a node is gone: {error}")

    def _lost(self, number: int) -> None:
        node, known = self._nodes.pop(number)
        print(f"node {number} ({known.id}) is lost", flush=True)
        kill_all(mark_of(self._place.cluster, number))
        if number:
            self._ray.remove_node(node, allow_graceful=False)
            self.write()

    def _watch_users(self) -> None:
        """Note when there was a driver or an actor last. In a thread: a head that hangs must not hang the keeper."""
        while True:
            try:
                state = self._ray.global_state
                drivers = any(not job["IsDead"] for job in state.job_table())
                if drivers or any(actor["State"] != "DEAD" for actor in state.actor_table(None).values()):
                    self._used = time.monotonic()
            except Exception as error:  # better a stray cluster than a campaign that is ended
                print(f"cannot list the drivers and actors of the cluster: {error!r}", flush=True)
                self._used = time.monotonic()
            time.sleep(min(_LOOK_S, self._idle_s / 4))


def _stop(number: int, frame: object) -> None:
    sys.exit(0)


def _listen(to: signal.Handlers | Callable[[int, object], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, to)


def _hold(place: ClusterFolder, up: int, nodes: int, cores: int, idle_s: float) -> None:
    """Hold a cluster until it is to end; then end everything and remove every file."""
    started = False
    try:
        _listen(_stop)
        keeper = Keeper(place, idle_s)
        for _ in range(nodes):
            keeper.add(cores)
        os.write(up, b"+")
        os.close(up)
        started = True
        keeper.keep()
    finally:
        _listen(signal.SIG_IGN)
        if started:
            place.clear()
        else:  # `start_local` reads the log first, and clears then
            kill_all(f"{place.cluster}:")


def main(folder: str, lock: str, up: str, nodes: str, cores: str, idle_s: str) -> None:
    """Detach from the process that started this one, and hold the cluster."""
    if os.fork():
        os._exit(0)
    for inherited in (lock, up):
        os.set_inheritable(int(inherited), False)
    place = ClusterFolder.of(Path(folder))
    if place is None:
        sys.exit(f"{folder}: has no token")
    try:
        _hold(place, int(up), int(nodes), int(cores), float(idle_s))
    except Exception:
        traceback.print_exc()
    except SystemExit as stopped:
        print(stopped)
    finally:
        sys.stdout.flush()
        os._exit(0)  # not by way of what Ray does at the end of a process: it would look for its nodes


if __name__ == "__main__":
    main(*sys.argv[1:])
