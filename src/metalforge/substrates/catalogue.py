"""The workload profiles that ship (`workloads.toml`), and workloads from a TOML file of one's own."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from metalforge.core.capabilities import capability_from_label
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.substrate import Kind, Workload


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
    return _workload(_read(path), path)


def workload(name: str) -> Workload:
    """Return a workload profile by name."""
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, WORKLOADS)
    return WORKLOADS[name]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SpecError(f"cannot read workload file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not valid TOML: {error}") from error


def _workload(raw: dict[str, Any], path: Path) -> Workload:
    for key in raw:
        if key not in _WorkloadFile.__struct_fields__:
            raise UnknownNameError(f"key in {path}", key, _WorkloadFile.__struct_fields__)
    try:
        fields = msgspec.structs.asdict(msgspec.convert(raw, _WorkloadFile))
        return Workload(**fields | {"needs": tuple(map(capability_from_label, fields["needs"]))})
    except (msgspec.ValidationError, ValueError) as error:
        raise SpecError(f"{path}: {error}") from error


_FILE = Path(__file__).with_name("workloads.toml")
WORKLOADS = {name: _workload({"name": name} | fields, _FILE) for name, fields in _read(_FILE).items()}
