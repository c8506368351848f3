"""What comes with the package: layouts of heads, networks, their scores on held-out chains, and where they come from.

The design documents disagree on every index of a head, so there are none: a layout is named and versioned, a head is
asked for by its name. Labels come from measurements of chains, never from a known transition and never from a decision
that a network made. Heads of transport coefficients need a plasma: in `conductor-11` they are unavailable, `plasma-2`
has them on the plasma's own features.

Command, seed, package version and corpus are the metadata entry `provenance` of a safetensors file, with the scores of
adopted heads. The network's own checksum does not cover it. What heads say does not depend on it, only whether
campaigns act on it.
"""

import tomllib
from dataclasses import replace as with_fields
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.core import PEAK_HEAD, HeadLayout, PathLike, SpecError, find, naming, replacing
from metalforge.reservoir import EsnWeights, load_weights, tensors

from .scores import AdoptedHead, HeadScores

PEAK = PEAK_HEAD


def _shipped() -> dict[str, HeadLayout]:
    """Return the layouts of `data/layouts.toml`; what a head does not say is that of the one it is like."""
    known: dict[str, dict[str, Any]] = {}
    layouts = {}
    for name, heads in tomllib.loads(files(__package__).joinpath("data/layouts.toml").read_text("utf-8")).items():
        for head in heads:
            said = {key: value for key, value in head.items() if key not in ("like", "on")}
            known[head["name"]] = known.get(head.get("like", ""), {}) | said
        layouts[name] = msgspec.convert({"name": name, "heads": [known[h["name"]] for h in heads]}, HeadLayout)
    return layouts


LAYOUTS = _shipped()
CONDUCTOR_11, GPU_PREP_11 = LAYOUTS["conductor-11"], LAYOUTS["gpu-prep-11"]
"""The heads of design documents 004 (twelve outputs, since the phase has two) and 003."""


def layout(name: str) -> HeadLayout:
    """Return a preset by name."""
    return find("head layout", name, LAYOUTS)


def migrate(weights: EsnWeights, target: HeadLayout) -> EsnWeights:
    """Return a network whose readout has the heads of `target`: rows move by name, new heads are zeros."""
    source, old_w, old_bias = weights.head_readout()
    w_out = np.zeros((target.width, old_w.shape[1]), weights.dtype)
    bias = np.zeros(target.width, weights.dtype)
    heads = []
    for head in target.heads:
        known = head.name in source.names and source[head.name].width == head.width
        if known:
            to, origin = target.span(head.name), source.span(head.name)
            w_out[to], bias[to] = old_w[origin], old_bias[origin]
        # A trained readout keeps the scale and the curve that it was fitted with.
        kept = source[head.name] if known else msgspec.structs.replace(head, trained=False)
        heads.append(msgspec.structs.replace(kept, available=head.available))
    marked = msgspec.structs.replace(target, heads=tuple(heads))
    return with_fields(weights, w_out=w_out, out_bias=bias, heads=marked)


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
