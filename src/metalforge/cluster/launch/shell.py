"""Parts that become one bash script: settings, quoted, and the files of `scripts/`, which are as they are.

What runs on a node (`node.sh`) is the same for Slurm and for plain hosts; it travels inside of the script.
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from metalforge.core import require_at_least

from .checks import checked, path_text

Setting = str | int | Sequence[str]
PORTS = 16
"""How many ports a node has for its services: 0 is the head's, 1 to 8 are the others."""
_END = "END_OF_NODE_SCRIPT"


class RayLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign that is launched and what every node of its cluster is told; launchers add their own."""

    spec: Path | None = None
    preset: str | None = None
    out: Path = Path("campaign")
    name: str = "metalforge"
    gpus_per_node: int = 0
    cpus_per_node: int | None = None  # without: all
    activate: Path | None = None  # a file to source, as .venv/bin/activate
    interface: str | None = None  # without: a private address of the host
    allow_public_address: bool = False
    client: bool = False  # a port for ray:// addresses
    patience_s: int = 600

    def __post_init__(self) -> None:
        require_at_least(1, cpus_per_node=self.cpus_per_node, patience_s=self.patience_s)
        require_at_least(0, gpus_per_node=self.gpus_per_node)

    def script(
        self, head: str, own: Mapping[str, Setting], *, ports: str, worker_ports: tuple[int, int], main: str
    ) -> str:
        """Return a script: its first lines, settings, what all have, the script of a node, and its own part.

        `ports`: how bash computes the first port of a node; `worker_ports`: the range for its workers, 0 for any.
        """
        low, high = worker_ports
        node: dict[str, Setting] = {
            "activate": "" if self.activate is None else path_text("activate", self.activate),
            "interface": "" if self.interface is None else checked("interface", "interface", self.interface),
            "allow_public": "yes" if self.allow_public_address else "no",
            "client": "yes" if self.client else "no",
            "cpus": str(self.cpus_per_node or ""),
            "gpus": self.gpus_per_node,
            "worker_low": low,
            "worker_high": high,
        }
        common, ports = _part("common.sh"), f"ports={ports}\n"
        own = {"out": path_text("out", self.out), "patience": self.patience_s, "activate": node["activate"], **own}
        writing = (
            f"write_node_script() {{\n  cat >\"$state/node.sh\" <<'{_END}'\n"
            f"{_settings(node)}{ports}{common}\n{_part('node.sh')}{_END}\n}}\n"
        )
        parts = (head + _settings(own) + ports, common, _part("run.sh"), writing, _part(main))
        return "\n".join(parts)


def _part(name: str) -> str:
    """Return a file of `scripts/`."""
    return (files(__package__ or "") / "scripts" / name).read_text(encoding="utf-8")


def _settings(values: Mapping[str, Setting]) -> str:
    """Return assignments; every value is quoted, and a sequence becomes an array."""
    return "".join(
        f"{name}={shlex.quote(str(value)) if isinstance(value, str | int) else f'({shlex.join(value)})'}\n"
        for name, value in values.items()
    )
