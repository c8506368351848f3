"""Which heads apply to the chains of a campaign, which of them are trusted, and why not.

Scores name the chains on which they were measured (`TestedKind`). On other chains heads are recorded, never acted on.

Weights of the user, such as `conductor adopt` writes, may have another layout: heads are matched by name. A head whose
network and readout are the package's, bit for bit, has the package's scores. A head that `conductor adopt` wrote has
its scores on campaigns that were left out, which the file holds. It is trusted where these and the package's scores of
that head allow it: the baselines of the package's test chains are stronger. Other heads have no scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from metalforge.core import NOT_ACTED_ON, HeadLayout, HeadStanding, SpecError, naming
from metalforge.reservoir import EsnWeights, expect_features, load_weights, to_dense

from .features import ChainContext
from .scores import AdoptedHead, HeadScore
from .shipped import CONDUCTOR_11, migrate, read_provenance, shipped_scores, shipped_weights

SOFTWARE, ON_NPU = "f32-software", "npu-w8a8"
"""Where the network can run, as scores call it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heads:
    """The network, what each head is worth on held-out data, and why heads are not used."""

    weights: EsnWeights
    scores: Mapping[str, HeadScore]
    """By head, where its skill was measured: on the route on which the network runs."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """Heads that do not apply to these chains, with the reason."""
    domain: str | None = None
    """Why no head is acted on here; None where the chains are of the kind they were trained on."""
    adopted: Mapping[str, AdoptedHead] = field(default_factory=dict)
    """Heads whose readout `conductor adopt` wrote, with the scores of that readout."""

    @property
    def layout(self) -> HeadLayout:
        """The heads of the network."""
        return self.weights.head_readout()[0]

    def acts(self, head: str) -> bool:
        """Return whether a head is acted on."""
        return self.domain is None and head not in self.unused and head in self.scores and self.scores[head].trusted

    def why(self, head: str) -> str:
        """Return why a head that applies is trusted, or why not."""
        if head in self.adopted:
            new = self.adopted[head]
            refused = new.trusted and not self.scores[head].trusted
            return new.measured + "; the package's readout was not trusted on its test chains" * refused
        if (score := self.scores.get(head)) is None:
            return "its skill on held-out chains was not measured"
        if score.trusted:
            return f"skill {score.skill:+.2f} on held-out couplings"
        if score.skill <= 0:
            return "no skill on held-out couplings"
        return f"skill {score.skill:+.2f}, but with other couplings it might have none"

    def standing(self, head: str, reason: str) -> HeadStanding:
        """Return whether a head is acted on, with the reason."""
        skill = self.scores[head].skill if head in self.scores else None
        return HeadStanding(name=head, acts=self.acts(head), reason=reason, skill=skill)

    def standings(self) -> tuple[HeadStanding, ...]:
        """Return of every head whether it is acted on, and why or why not."""

        def reason(name: str) -> str:
            if name in self.unused:
                return f"does not apply: {self.unused[name]}"
            return self.why(name) if self.acts(name) else f"{NOT_ACTED_ON}{self.domain or self.why(name)}"

        return tuple(self.standing(name, reason(name)) for name in self.layout.names)


def heads_for(
    chains: Sequence[ChainContext], route: str, *, integrator: str = "", unused: Mapping[str, str] | None = None
) -> Heads:
    """Return the heads of the package with their scores on a route, as they stand to chains, one of each system."""
    known = shipped_scores()
    scores = {score.name: score for score in known.heads if score.route == route}
    heads = Heads(weights=shipped_weights(), scores=scores, unused=dict(unused or {}))
    tested = set(heads.layout.names)
    for chain in chains:
        alike = [kind for kind in known.tested_on if kind.lacks(chain, integrator) is None]
        if not alike:
            same = [k for k in known.tested_on if (k.algorithm, k.flavors) == (chain.algorithm, chain.flavors)]
            return replace(heads, domain=f"tested on {(same or known.tested_on)[0].lacks(chain, integrator)}")
        if all(kind.heads for kind in alike):
            tested &= {name for kind in alike for name in kind.heads}
    untested = sorted(set(heads.layout.names) - tested)
    return replace(heads, unused=dict.fromkeys(untested, "not tested on chains of this kind") | dict(heads.unused))


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
    known = [name for name in heads.scores if name not in lacking]
    adopted = {} if made is None else {head.name: head for head in made.adopted if head.name in known}
    kept = {name: heads.scores[name] for name in _unchanged(weights, shipped) if name in heads.scores}
    return replace(
        heads,
        weights=weights,
        scores=kept | {name: head.scored(heads.scores[name]) for name, head in adopted.items()},
        unused={**heads.unused, **dict.fromkeys(lacking, "the weights have no such head")},
        adopted=adopted,
    )


def _unchanged(weights: EsnWeights, shipped: EsnWeights) -> list[str]:
    """Return the heads of weights in the package's layout whose network and readout are the package's, bit for bit."""

    def network(of: EsnWeights) -> tuple[object, ...]:
        arrays = (of.w_in, to_dense(of.w_res), of.bias)
        return of.leak, of.activation, of.passthrough, of.ranges, *(part.tobytes() for part in arrays)

    def readout(of: EsnWeights, name: str) -> tuple[object, ...]:
        heads, *arrays = of.head_readout()
        return heads[name], *(part[heads.span(name)].tobytes() for part in arrays)

    if network(weights) != network(shipped):
        return []
    return [name for name in CONDUCTOR_11.names if readout(weights, name) == readout(shipped, name)]


def standings_of(path: Path) -> list[HeadStanding]:
    """Return how every head of a weight file stands: one acts where it does in software and on the NPU."""
    software, npu = (with_weights(heads_for((), route), path) for route in (SOFTWARE, ON_NPU))
    found = []
    for name in CONDUCTOR_11.names:
        heads = software if not software.acts(name) or npu.acts(name) else npu
        reason = heads.unused.get(name) or heads.why(name)
        found.append(heads.standing(name, reason))
    return found
