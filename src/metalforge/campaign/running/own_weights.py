"""Weights of the user instead of the package's, such as `conductor adopt` writes: kept with the campaign.

They may have another layout: heads are matched by name, those that a campaign does not know are not read. Scores belong
to numbers: a head whose readout is the package's, bit for bit, over the package's network, has the package's scores. A
head that `conductor adopt` wrote has the scores on campaigns that were left out, which the file holds. It
is trusted where these and the package's scores of that head allow it: the baselines of the package's test chains are
stronger. Other heads have no scores: they are read and recorded, and never acted on.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec

from metalforge.campaign.store.records import Decided
from metalforge.conductor.layouts import CONDUCTOR_11, migrate
from metalforge.conductor.shipped import read_provenance
from metalforge.core.errors import SpecError
from metalforge.core.files import naming, opened, read_bytes, replacing
from metalforge.reservoir.files import expect_features, load_weights
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights

from .book import Book
from .heads import ON_NPU, SOFTWARE, Heads, scored_heads

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
    weights = weights if names == CONDUCTOR_11.names else migrate(weights, CONDUCTOR_11)
    made = read_provenance(path)
    adopted = {} if made is None else {head.name: head for head in made.adopted if head.name not in lacking}
    kept = [name for name in _unchanged(weights, shipped) if name not in adopted]
    return replace(
        heads,
        weights=weights,
        scores=tuple(adopted[one.name].scored(one) if one.name in adopted else one for one in heads.scores),
        trusted={name: heads.trusted[name] for name in kept if name in heads.trusted}
        | {name: head.trusted and heads.trusted.get(name, False) for name, head in adopted.items()},
        skill={name: heads.skill[name] for name in kept if name in heads.skill}
        | {name: head.skill_after for name, head in adopted.items()},
        unused={**heads.unused, **dict.fromkeys(lacking, "the weights have no such head")},
        adopted=adopted,
    )


def _unchanged(weights: EsnWeights, shipped: EsnWeights) -> list[str]:
    """Return the heads of weights in the package's layout whose network and readout are the package's, bit for bit."""

    def network(of: EsnWeights) -> tuple[object, ...]:
        arrays = (of.w_in, to_dense(of.w_res), of.bias)
        return of.leak, of.activation, of.passthrough, of.ranges, *(part.tobytes() for part in arrays)

    def readout(of: EsnWeights, name: str) -> tuple[object, ...]:
        assert of.heads is not None
        assert of.w_out is not None
        assert of.out_bias is not None
        span = of.heads.span(name)
        return of.heads[name], of.w_out[span].tobytes(), of.out_bias[span].tobytes()

    if network(weights) != network(shipped):
        return []
    return [name for name in CONDUCTOR_11.names if readout(weights, name) == readout(shipped, name)]


class HeadStanding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether campaigns act on a head of some weights, on chains of the kinds that it was tested on, and why."""

    name: str
    acts: bool
    reason: str


def standings_of(path: Path) -> list[HeadStanding]:
    """Return how every head of a weight file stands: one acts where it does in software and on the NPU."""
    routes = [with_weights(scored_heads(route), path) for route in (SOFTWARE, ON_NPU)]
    found = []
    for name in CONDUCTOR_11.names:
        heads = next((heads for heads in routes if not heads.acts(name)), routes[0])
        reason = heads.unused.get(name) or heads.why(name)
        found.append(HeadStanding(name=name, acts=heads.acts(name), reason=reason))
    return found


def kept_weights(heads: Heads, path: str, directory: Path, book: Book) -> Heads:
    """Return the heads of a campaign that was given weights, by its own copy, which must be the one it began with."""
    kept = directory / KEPT
    if not kept.exists():
        with opened(Path(path)) as (stream, _), replacing(kept) as copy:
            copy.write(stream.read())
    sha256 = hashlib.sha256(read_bytes(kept)).hexdigest()
    known = next((d.reason for d in book.state.decisions if d.what == WEIGHTS), None)
    if known is None:
        book.write(Decided(what=WEIGHTS, by="user", reason=f"sha256 {sha256}"))
    elif known != f"sha256 {sha256}":
        raise SpecError(f"{kept}: not the weights that the campaign began with ({known})\nhint: put the file back")
    return with_weights(heads, kept)
