"""A synthetic classification task in which only the order of what is shown tells the classes apart."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

__all__ = ["LabelledSequences", "sequence_classification"]


class LabelledSequences(NamedTuple):
    """Sequences (n, steps, inputs), float64, and their labels (n,), int64."""

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]


def sequence_classification(
    n: int,
    *,
    seed: int,
    inputs: int = 50,
    steps: int = 30,
    classes: int = 4,
    noise: float = 2.0,
    quiet: int = 4,
) -> LabelledSequences:
    r"""Return n noisy sequences, their classes equally many (to one) and in random order. Slice it for train and test.

    One motif, a random vector of rms 1, belongs to each class. Class c shows all motifs one after the other, beginning
    with motif c and going round, each for a random number of steps; the last `quiet` steps show none. Then

        u_t = (motif shown at t + noise * normal) / sqrt(1 + noise^2)

    The mean, the largest and the last input are distributed alike in all classes, so at the end nobody does better than
    1 / classes who has not remembered when a motif was shown. A network of 128 units (spectral radius 0.9, leak 0.3,
    input scaling 0.3) with a ridge readout of its last state, trained on 2000, gets 0.92 right at the defaults.
    """
    shown = steps - quiet
    if n < 1 or inputs < 1 or classes < 2 or quiet < 0 or shown < 2 * classes:
        raise SpecError(
            "the task wants n >= 1, inputs >= 1, classes >= 2, quiet >= 0 and at least two steps per class before the "
            f"quiet ones. Got n = {n}, inputs = {inputs}, classes = {classes}, quiet = {quiet}, steps = {steps}"
        )
    if not 0 <= noise < np.inf:
        raise SpecError(f"`noise` must be 0 or more, and finite. Got {noise}")
    # The motifs have a stream of their own: the same seed gives the same task for any n.
    for_motifs, for_labels, for_times, for_noise = np.random.default_rng(seed).spawn(4)
    motifs = for_motifs.normal(size=(classes, inputs))
    motifs /= np.sqrt(np.mean(motifs**2, axis=1, keepdims=True))
    labels = for_labels.permutation(np.arange(n, dtype=np.int64) % classes)

    # Every motif has half of its equal share for certain; where the spare steps go is random and the same for all.
    certain = shown // (2 * classes)
    spare = shown - certain * classes
    cuts = np.sort(for_times.integers(0, spare + 1, (n, classes - 1)), axis=1) + certain * np.arange(1, classes)
    time = np.arange(steps)
    turn = np.sum(time[np.newaxis, :, np.newaxis] >= cuts[:, np.newaxis, :], axis=2)
    u = motifs[(turn + labels[:, np.newaxis]) % classes]
    u[:, shown:] = 0
    u += noise * for_noise.normal(size=u.shape)
    return LabelledSequences(u / np.sqrt(1 + noise**2), labels)
