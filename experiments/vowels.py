"""Synthetic speakers, in the likeness of the Japanese vowels; no recording is behind them."""

import numpy as np

from metalforge.core.errors import SpecError, require_not_negative
from metalforge.reservoir.datasets import LabelledSequences, directions, shuffled_labels

SHORTEST, LONGEST = 7, 29
"""Steps of a sequence, as in the recorded set."""
BLEND = 0.7
"""How far noise at one step is that of the step before: neighbouring frames of speech overlap."""


def vowel_like(
    n: int,
    *,
    seed: int,
    speakers: int = 9,
    inputs: int = 12,
    voice: float = 0.2,
    bend: float = 0.6,
    mood: float = 0.35,
    noise: float = 0.4,
) -> LabelledSequences:
    r"""Return n sequences (n, 29, inputs), speakers equally many (to one) and in random order; rest comes before.

    The recorded set (M. Kudo, J. Toyama, M. Shimbo, Pattern Recognition Letters 20, 1999) has nine speakers who say two
    vowels one after the other, twelve cepstral coefficients a frame, 7 to 29 frames. Here, with random vectors A, E of
    the two vowels and V_c, B_c of speaker c, all of rms 1 (times the scale before them),

        u(x) = (1 - x) A + x E + voice V_c + bend sin(2 pi x) B_c + mood M + noise N

    where x goes from 0 to 1 along the sequence, M is drawn anew for every sequence and N for every step, blended with
    the step before. V_c tells a speaker at any time and in the mean; B_c only by the order, since it averages to
    nothing. Sequences of 7 to 29 steps have zeros before them, which leave a network without bias at rest; all are
    divided by one number that makes the rms of the frames about 1. Slice it for train and test.
    """
    if n < 1 or speakers < 2 or inputs < 1:
        raise SpecError(
            f"the task wants n >= 1, speakers >= 2 and inputs >= 1. Got n = {n}, speakers = {speakers}, "
            f"inputs = {inputs}"
        )
    require_not_negative(voice=voice, bend=bend, mood=mood, noise=noise)
    # The speakers have a stream of their own: the same seed gives the same task for any n.
    for_speakers, for_labels, for_lengths, for_noise = np.random.default_rng(seed).spawn(4)
    first, second, *rest = directions(for_speakers, 2 + 2 * speakers, inputs)
    voices, bends = np.array(rest[:speakers]), np.array(rest[speakers:])
    labels = shuffled_labels(for_labels, n, speakers)
    lengths = for_lengths.integers(SHORTEST, LONGEST + 1, n)

    x = 1 - np.arange(LONGEST - 1, -1, -1) / (lengths[:, np.newaxis] - 1)  # below 0 before a sequence begins
    spoken = x > -1e-9
    x = np.clip(x, 0, 1)[..., np.newaxis]
    frames = for_noise.normal(size=(n, LONGEST, inputs))
    for t in range(1, LONGEST):
        frames[:, t] = BLEND * frames[:, t - 1] + np.sqrt(1 - BLEND**2) * frames[:, t]
    mean = (1 - x) * first + x * second
    own = voice * voices[labels][:, np.newaxis] + bend * np.sin(2 * np.pi * x) * bends[labels][:, np.newaxis]
    u = mean + own + mood * for_noise.normal(size=(n, 1, inputs)) + noise * frames
    # What the formula gives on average, not what was drawn: sets of other sizes have the same unit.
    rms = np.sqrt(2 / 3 + voice**2 + bend**2 / 2 + mood**2 + noise**2)
    return LabelledSequences(np.where(spoken[..., np.newaxis], u / rms, 0.0), labels)
