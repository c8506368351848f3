"""What `--cluster` and a spec's `[running] cluster` say: which cluster a campaign runs on."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from metalforge.core import SpecError

MOST_NODES, MOST_CORES = 64, 1024
"""Of a cluster on this machine: a node takes 150 MB and a second to start; cores are only counted."""
_HOST = r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)"
_LOCAL = re.compile(r"local:(?P<nodes>[0-9]{1,9})x(?P<cores>[0-9]{1,9})")
_REMOTE = re.compile(rf"(?P<client>ray://)?{_HOST}:(?P<port>[0-9]{{1,9}})")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A cluster by its text: `parse` reads it, `str` gives it again.

    `auto` is the one that RAY_ADDRESS names, or that this machine belongs to, `local` one of `nodes`
    nodes of `cores` cores each that is started on this machine, `client` one that is reached through Ray's client
    server (``ray://HOST:PORT``), `head` one whose head is at ``HOST:PORT`` and to which this machine belongs.
    """

    kind: Literal["auto", "local", "client", "head"]
    nodes: int = 0
    cores: int = 0
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a text names; raises `SpecError` where it names nothing."""
        if text == "auto":
            return cls("auto")
        if local := _LOCAL.fullmatch(text):
            nodes, cores = int(local["nodes"]), int(local["cores"])
            if 1 <= nodes <= MOST_NODES and 1 <= cores <= MOST_CORES:
                return cls("local", nodes=nodes, cores=cores)
            wanted = f"1 to {MOST_NODES} nodes of 1 to {MOST_CORES} cores"
            raise SpecError(f"`cluster` local:NODESxCORES must have {wanted}. Got {text!r}\nhint: local:3x2")
        if not text.startswith("local:") and (remote := _REMOTE.fullmatch(text)):
            if 1 <= (port := int(remote["port"])) <= 65535:
                return cls("client" if remote["client"] else "head", host=remote["host"], port=port)
            raise SpecError(f"the port of `cluster` must be 1 to 65535. Got {text!r}\nhint: ray://HOST:10001")
        raise SpecError(
            f"`cluster` must be auto, local:NODESxCORES, ray://HOST:PORT or HOST:PORT. Got {text!r}\n"
            "hint: local:3x2 is a cluster of three nodes of two cores on this machine"
        )

    def __str__(self) -> str:
        if self.kind == "local":
            return f"local:{self.nodes}x{self.cores}"
        return "auto" if self.kind == "auto" else f"{'ray://' * (self.kind == 'client')}{self.host}:{self.port}"
