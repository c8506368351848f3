"""Weights of the user instead of the package's, such as `conductor adopt` writes: kept with the campaign.

They may have another layout: heads are matched by name, those that a campaign does not know are not read.
Scores on held-out chains are those of the package's weights. Weights that descend from them by campaigns keep their
trust, for a head was taken over only where it became better on campaigns that were left out; heads of other weights are
read and recorded, and never acted on.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from metalforge.campaign.store.records import Decided
from metalforge.conductor.layouts import CONDUCTOR_11, migrate
from metalforge.conductor.shipped import default_provenance, read_provenance
from metalforge.core.errors import SpecError
from metalforge.core.files import naming, opened, replacing
from metalforge.reservoir.files import expect_features, load_weights

from .book import Book
from .heads import Heads

KEPT = "weights.safetensors"
"""The file in a campaign's directory."""
WEIGHTS = "weights"
"""What the journal calls the choice."""


def with_weights(heads: Heads, path: Path) -> Heads:
    """Return heads as the weights of a file have them; refused where inputs differ or no head is known."""
    weights, shipped = load_weights(path), heads.weights
    with naming(path):
        if shipped.features is not None:
            expect_features(weights, shipped.features)
        names = () if weights.heads is None else weights.heads.names
        lacking = [name for name in CONDUCTOR_11.names if name not in names]
        if len(lacking) == len(CONDUCTOR_11.names):
            raise SpecError(
                f"`screening.weights` must have at least one head of {', '.join(CONDUCTOR_11.names)}. "
                f"Got {', '.join(names) or 'weights without a head layout'}"
            )
    made, known = read_provenance(path), default_provenance()
    descends = made is not None and (made.seed, made.corpus_sha256) == (known.seed, known.corpus_sha256)
    return replace(
        heads,
        weights=weights if names == CONDUCTOR_11.names else migrate(weights, CONDUCTOR_11),
        trusted={name: trusted for name, trusted in heads.trusted.items() if descends and name not in lacking},
        skill={name: skill for name, skill in heads.skill.items() if descends and name not in lacking},
        unused={**heads.unused, **dict.fromkeys(lacking, "the weights have no such head")},
    )


def kept_weights(heads: Heads, path: str, directory: Path, book: Book) -> Heads:
    """Return the heads of a campaign that was given weights, by its own copy, which must be the one it began with."""
    kept = directory / KEPT
    if not kept.exists():
        with opened(Path(path)) as (stream, _), replacing(kept) as copy:
            copy.write(stream.read())
    sha256 = hashlib.sha256(kept.read_bytes()).hexdigest()
    known = next((d.reason for d in book.state.decisions if d.what == WEIGHTS), None)
    if known is None:
        book.write(Decided(what=WEIGHTS, by="user", reason=f"sha256 {sha256}"))
    elif known != f"sha256 {sha256}":
        raise SpecError(f"{kept}: not the weights that the campaign began with ({known})\nhint: put the file back")
    return with_weights(heads, kept)
