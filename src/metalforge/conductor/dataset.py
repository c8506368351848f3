"""Chains as a network sees them: frames (trajectories, features) with targets by head, split by chain.

Frames are those of `features`, the same as when the conductor runs; what earlier runs found comes from the long runs at
other training couplings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .chains import ChainRecord, Corpus, Doubles, Part
from .features import FEATURES, Frame, FrameBuilder, MetaRow, scaled
from .labels import ChainLabels, Labeller

__all__ = ["Example", "examples", "frames_of", "meta_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """One chain: inputs (trajectories, features) and labels."""

    chain: ChainRecord
    inputs: Doubles
    labels: ChainLabels

    @property
    def beta(self) -> float:
        """Its coupling."""
        return self.chain.entry.beta

    @property
    def lattice(self) -> tuple[object, ...]:
        """Extents and mass: what chains of one scan share."""
        return self.chain.entry.dims, self.chain.entry.mass

    def feature(self, name: str) -> Doubles:
        """Return one scaled feature by name."""
        return np.asarray(self.inputs[:, [f.name for f in FEATURES.features].index(name)])


def meta_rows(corpus: Corpus, chain: ChainRecord) -> list[MetaRow]:
    """Return what the long runs at other training couplings found on this chain's lattice."""
    entry = chain.entry
    grid = {c.entry.beta for c in corpus.part("train") if (c.entry.dims, c.entry.mass) == (entry.dims, entry.mass)}
    rows = []
    for place, series in corpus.references:
        alike = (place.dims, place.mass) == (entry.dims, entry.mass)
        if alike and place.beta in grid and place.beta != entry.beta:
            volume = float(np.prod(place.dims[:3]))
            rows.append(
                MetaRow(
                    beta=place.beta,
                    plaquette=float(series[:, :, 2].mean()),
                    susceptibility=volume * float(series[:, :, 1].var()),
                )
            )
    return rows


def frames_of(chain: ChainRecord, meta: Sequence[MetaRow] = ()) -> list[Frame]:
    """Return the frames of a chain, in order."""
    builder = FrameBuilder(chain.entry.context, meta)
    return [builder.push(trajectory) for trajectory in chain.trajectories()]


def examples(corpus: Corpus, part: Part) -> list[Example]:
    """Return the chains of one part as examples."""
    labeller = Labeller(corpus)
    found = []
    for chain in corpus.part(part):
        frames = frames_of(chain, meta_rows(corpus, chain))
        inputs = np.stack([scaled(frame) for frame in frames])
        found.append(Example(chain=chain, inputs=inputs, labels=labeller.labels(chain)))
    return found
