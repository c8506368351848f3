"""Weights of a conductor in files: a network each, with what readings need besides, written whole or not at all.

A file is one of `reservoir.files`, which every reader of networks reads; its metadata have a second entry, `conductor`,
with the noise of every head and the files of further members of an ensemble, which lie beside it under names made from
their content. The first file is written last: until then the old ones are all in place.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, naming, opened, replacing
from metalforge.reservoir import tensors
from metalforge.reservoir.files import load_weights
from metalforge.reservoir.weights import EsnWeights

__all__ = ["load_members", "save_members"]

ENTRY = "conductor"
SUFFIX = ".safetensors"
LARGEST_HEADER = 100_000_000
"""Bytes: the limit of the format."""


class _Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further network of an ensemble, in a file of the same folder."""

    file: str
    sha256: str


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a conductor's file says besides the network; a noise that is not known is not in it."""

    spreads: dict[str, float] = {}
    members: tuple[_Member, ...] = ()


def save_members(members: Sequence[EsnWeights], spreads: Mapping[str, float], path: PathLike) -> None:
    """Write networks and noise by head to `path`, a .safetensors, and to files beside it from the second member on."""
    target = Path(path)
    if target.suffix != SUFFIX:
        raise SpecError(f"{path}: a conductor is written as {SUFFIX}. Got `{target.suffix}`")
    old = _old_members(target)
    others = []
    for weights in members[1:]:
        data = tensors.encode(weights)
        digest = hashlib.sha256(data).hexdigest()
        file = target.with_name(_name(target, digest))
        with replacing(file) as stream:
            stream.write(data)
        others.append(_Member(file=file.name, sha256=digest))
    known = {name: float(value) for name, value in spreads.items() if math.isfinite(value)}
    record = _Record(spreads=known, members=tuple(others))
    with replacing(path) as stream:
        stream.write(tensors.with_metadata(tensors.encode(members[0]), ENTRY, msgspec.json.encode(record).decode()))
    for member in old:
        if member not in others:
            target.with_name(member.file).unlink(missing_ok=True)


def load_members(path: PathLike) -> tuple[tuple[EsnWeights, ...], dict[str, float]]:
    """Return the networks and the noise by head of a file; of a plain network's file, that network and no noise."""
    record = _record(path)
    networks = [load_weights(path)]
    for member in record.members:
        if Path(member.file).name != member.file:
            raise SpecError(f"{path}: members lie in the same folder. Got {member.file!r}")
        file = Path(path).with_name(member.file)
        with opened(file) as (stream, _):
            if hashlib.sha256(stream.read()).hexdigest() != member.sha256:
                raise SpecError(f"it is not the network that {path} names as its member")
        networks.append(load_weights(file))
    return tuple(networks), record.spreads


def _name(target: Path, digest: str) -> str:
    return f"{target.stem}-{digest[:12]}{SUFFIX}"


def _old_members(target: Path) -> tuple[_Member, ...]:
    """Return the members of the file that is replaced; only files that were named here, whatever it says."""
    try:
        named = _record(target).members if target.is_file() else ()
    except SpecError:  # damaged, and about to be replaced
        return ()
    return tuple(member for member in named if member.file == _name(target, member.sha256))


def _record(path: PathLike) -> _Record:
    """Return a file's second entry; an empty one of a file that has none, or is no safetensors."""
    with opened(path) as (stream, size):
        length = int.from_bytes(stream.read(8), "little")
        if Path(path).suffix == ".json" or not 0 < length <= min(size - 8, LARGEST_HEADER):
            return _Record()
        header = stream.read(length)
    with naming(path):
        try:
            metadata = msgspec.json.decode(header, type=dict[str, msgspec.Raw]).get("__metadata__")
            text = None if metadata is None else msgspec.json.decode(metadata, type=dict[str, str]).get(ENTRY)
            return _Record() if text is None else msgspec.json.decode(text, type=_Record)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SpecError(f"metadata entry `{ENTRY}`: {error}") from error
