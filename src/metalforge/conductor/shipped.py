"""The weights that come with the package, what they scored on held-out chains, and where weights come from.

Command, seed, package version and corpus are the metadata entry `provenance` of a safetensors file, with the scores of
adopted heads. The network's own checksum does not cover it. What heads say does not depend on it, only whether
campaigns act on it.
"""

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from metalforge import __version__
from metalforge.core import PathLike, SpecError, naming, replacing
from metalforge.reservoir import EsnWeights, load_weights, tensors

from .scores import AdoptedHead, HeadScores

ENTRY = "provenance"


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a weight file was made."""

    command: str
    seed: int
    """Of the reservoir."""
    corpus_seed: int
    corpus_sha256: str
    campaigns: tuple[str, ...] = ()
    """SHA-256 of the journals that were folded in afterwards (`conductor adopt`), in the order in which they were."""
    adopted: tuple[AdoptedHead, ...] = ()
    """Heads whose readout is not the one that was trained on the corpus, with their scores."""
    package_version: str = __version__


def save_with_provenance(weights: EsnWeights, provenance: Provenance, path: PathLike) -> None:
    """Write a network to a .safetensors file that says where it comes from; the same network gives the same bytes."""
    if Path(path).suffix != ".safetensors":
        raise SpecError(f"{path}: weights with provenance are written as .safetensors. Got `{Path(path).suffix}`")
    with naming(path, "written"):
        data = tensors.encode(weights)
    with replacing(path) as stream:
        stream.write(tensors.with_metadata(data, ENTRY, msgspec.json.encode(provenance).decode()))


def read_provenance(path: PathLike) -> Provenance | None:
    """Return what a weight file says of its making; None where it says nothing."""
    with naming(path), tensors.opened_tensors(path) as file:
        text = (file.metadata() or {}).get(ENTRY)
        return None if text is None else msgspec.json.decode(text, type=Provenance)


FOLDER = files("metalforge.conductor") / "data"
DEFAULT = "conductor-11"
"""The layout that campaigns read with."""


@cache
def shipped_weights(layout: str = DEFAULT) -> EsnWeights:
    """Return the network that comes with the package for a layout: 128 units, the features of a frame."""
    with as_file(FOLDER / f"{layout}.safetensors") as path:
        return load_weights(path)


@cache
def shipped_scores(layout: str = DEFAULT) -> HeadScores:
    """Return what that network is worth on held-out chains."""
    return msgspec.json.decode((FOLDER / f"{layout}.json").read_bytes(), type=HeadScores)


def shipped_provenance(layout: str = DEFAULT) -> Provenance:
    """Return the command, seeds and corpus that made that network."""
    with as_file(FOLDER / f"{layout}.safetensors") as path:
        made = read_provenance(path)
    assert made is not None, "the shipped file says how it was made"
    return made
