"""The workload profiles that ship (`workloads.toml`), and workloads from a TOML file of one's own."""

from pathlib import Path
from typing import Any

import msgspec

from metalforge.core import Kind, Workload, capability_from_label, find, opened, require_known


class _WorkloadFile(msgspec.Struct, kw_only=True):
    """A workload as it stands in TOML: capabilities by label."""

    name: str
    needs: list[str]
    flops: float
    bytes_moved: float
    summary: str = ""
    size: str = ""
    prefer: Kind | None = None
    precision: str = "f64"


def load_workload(path: Path) -> Workload:
    """Read a workload from a TOML file; unknown keys, labels and types are refused by name."""
    with opened(path) as (stream, _):
        return _workload(msgspec.toml.decode(stream.read()))


def workload(name: str) -> Workload:
    """Return a workload profile by name."""
    return find("workload", name, WORKLOADS)


def _workload(raw: dict[str, Any]) -> Workload:
    for key in raw:
        require_known("key", key, _WorkloadFile.__struct_fields__)
    fields = msgspec.structs.asdict(msgspec.convert(raw, _WorkloadFile))
    return Workload(**fields | {"needs": tuple(map(capability_from_label, fields["needs"]))})


_SHIPPED = msgspec.toml.decode(Path(__file__).with_name("workloads.toml").read_bytes(), type=dict[str, dict[str, Any]])
WORKLOADS = {name: _workload({"name": name} | fields) for name, fields in _SHIPPED.items()}
