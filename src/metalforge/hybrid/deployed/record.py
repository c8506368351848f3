"""What a deployed file says beside its arrays, and the file itself: safetensors with one more entry of metadata.

A network is a weights file (`reservoir.tensors`), which `load_weights` reads too: standardisation is in its feature
schema and its heads, calibration in its `ranges`. The entry adds how it is run. A plan is a file of its own arrays.
"""

import hashlib
from typing import Final, Literal, TypeAlias

import msgspec
from safetensors.numpy import save

from metalforge import __version__
from metalforge.core import Array, FeatureSchema, HeadLayout, PathLike, SpecError, naming, opened, replacing
from metalforge.reservoir import EsnWeights, Layout, tensors

from .plan_file import StoredPlan

FORMAT: Final = "metalforge.deployed"
VERSION = 1
ENTRY = "deployed"
_TYPES = frozenset({"F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "BOOL"})
"""Types of arrays, as the library calls them; others NumPy does not have."""

Label: TypeAlias = str | int | float
"""The name of a class."""


class _Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    labels: tuple[Label, ...] | None = None
    """Names of the classes, an output each; the largest output names the class."""
    provenance: dict[str, str] = {}
    made_by: str = f"metalforge {__version__}"


class EsnRecord(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="esn"):
    """How a network is run: where its product is computed, and what its inputs and outputs are."""

    mode: Literal["software", "hardware-linear", "hardware-native", "chunked"] = "software"
    approach: Literal["last-layer", "two-rail"] | None = None
    precision: str | None = None
    inputs: Literal["device", "host"] | None = None
    """Where W_in is."""
    profile: str = "akd1000-published"
    """Of the device that is emulated where none is given."""
    programs: tuple[str, ...] = ()
    """Fingerprints of what was on the device."""
    chunk_units: int | None = None
    device_units: int | None = None
    """Of a network in chunks: rows of each, and how many rows the device has."""
    target: Literal["step", "series"] = "step"
    """An output for every step, or one for every series, at its last step."""
    rows: Literal["time", "samples"] = "time"
    """What a table of two axes is: the steps of one series, or series of one step."""
    layout: Layout = "steps_first"
    """The order of the axes of several series."""
    flat: bool = False
    """Whether the only output has no axis of its own."""


class PlanFile(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="plan"):
    """A graph with its place and integers (`plan_file`), and what scales its inputs and outputs."""

    plan: StoredPlan | None = None
    features: FeatureSchema | None = None
    heads: HeadLayout | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["metalforge.deployed"] = FORMAT
    version: int = VERSION
    model: EsnRecord | PlanFile
    sha256: str
    """Of the model's record, and of what it stands on: the network's own checksum, or the plan's arrays."""


def write_network(weights: EsnWeights, record: EsnRecord, path: PathLike) -> None:
    """Write a network and how it is run; the same network gives the same bytes."""
    with naming(path, "written"):
        data = tensors.encode(weights)
        text = _text(record, tensors.metadata(data)[tensors.ENTRY].encode())
    with replacing(path) as stream:
        stream.write(tensors.with_metadata(data, ENTRY, text))


def write_plan(record: PlanFile, arrays: dict[str, Array], path: PathLike) -> None:
    """Write a plan and its arrays."""
    with naming(path, "written"):
        data = save(arrays, metadata={ENTRY: _text(record, tensors.arrays_digest(b"", arrays))})
    with replacing(path) as stream:
        stream.write(data)


def read_entry(path: PathLike) -> tuple[EsnRecord | PlanFile | None, dict[str, Array]]:
    """Return what a safetensors file says of its deployment, and the arrays of a plan; None for plain weights."""
    with opened(path):
        with tensors.opened_tensors(path) as file:
            metadata = file.metadata() or {}
            if ENTRY not in metadata:
                return None, {}
            found, arrays = tensors.decoded_entry(ENTRY, metadata[ENTRY], _File, FORMAT, VERSION), {}
            if isinstance(found.model, PlanFile):
                names = list(file.keys())
                strange = {kind for name in names if (kind := file.get_slice(name).get_dtype()) not in _TYPES}
                if strange:
                    raise SpecError(f"holds numbers of type {', '.join(sorted(strange))}, which no plan has")
                arrays = {name: file.get_tensor(name) for name in names}
        below = tensors.arrays_digest(b"", arrays) if arrays else metadata.get(tensors.ENTRY, "").encode()
        tensors.check_sha256(found.sha256, _checksum(found.model, below))
        return found.model, arrays


def _text(model: EsnRecord | PlanFile, below: bytes) -> str:
    return msgspec.json.encode(_File(model=model, sha256=_checksum(model, below))).decode()


def _checksum(model: EsnRecord | PlanFile, below: bytes) -> str:
    return hashlib.sha256(msgspec.json.encode(model) + below).hexdigest()
