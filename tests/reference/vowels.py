"""Synthetic speakers, in the likeness of the Japanese vowels; no recording is behind them."""

import numpy as np

from metalforge.reservoir.datasets import LabelledSequences, directions, shuffled_labels

SHORTEST, LONGEST = 7, 29
"""Steps of a sequence, as in the recorded set."""
BLEND = 0.7
"""How far noise at one step is that of the step before: neighbouring frames of speech overlap."""
SPEAKERS, INPUTS = 9, 12
VOICE, BEND, MOOD, NOISE = 0.2, 0.6, 0.35, 0.4


def vowel_like(n, *, seed):
    r"""Return n sequences (n, 29, 12), speakers equally many (to one) and in random order; rest comes before.

    The recorded set (M. Kudo, J. Toyama, M. Shimbo, Pattern Recognition Letters 20, 1999) has nine speakers who say two
    vowels one after the other, twelve cepstral coefficients a frame, 7 to 29 frames. Here, with random vectors A, E of
    the two vowels and V_c, B_c of speaker c, all of rms 1 (times the scale before them),

        u(x) = (1 - x) A + x E + voice V_c + bend sin(2 pi x) B_c + mood M + noise N

    where x goes from 0 to 1 along the sequence, M is drawn anew for every sequence and N for every step, blended with
    the step before. Sequences have zeros before them, which leave a network without bias at rest; all are divided by
    one number that makes the rms of the frames about 1.
    """
    # The speakers have a stream of their own: the same seed gives the same task for any n.
    for_speakers, for_labels, for_lengths, for_noise = np.random.default_rng(seed).spawn(4)
    first, second, *rest = directions(for_speakers, 2 + 2 * SPEAKERS, INPUTS)
    voices, bends = np.array(rest[:SPEAKERS]), np.array(rest[SPEAKERS:])
    labels = shuffled_labels(for_labels, n, SPEAKERS)
    lengths = for_lengths.integers(SHORTEST, LONGEST + 1, n)

    x = 1 - np.arange(LONGEST - 1, -1, -1) / (lengths[:, np.newaxis] - 1)  # below 0 before a sequence begins
    spoken = x > -1e-9
    x = np.clip(x, 0, 1)[..., np.newaxis]
    frames = for_noise.normal(size=(n, LONGEST, INPUTS))
    for t in range(1, LONGEST):
        frames[:, t] = BLEND * frames[:, t - 1] + np.sqrt(1 - BLEND**2) * frames[:, t]
    mean = (1 - x) * first + x * second
    own = VOICE * voices[labels][:, np.newaxis] + BEND * np.sin(2 * np.pi * x) * bends[labels][:, np.newaxis]
    u = mean + own + MOOD * for_noise.normal(size=(n, 1, INPUTS)) + NOISE * frames
    # What the formula gives on average, not what was drawn: sets of other sizes have the same unit.
    rms = np.sqrt(2 / 3 + VOICE**2 + BEND**2 / 2 + MOOD**2 + NOISE**2)
    return LabelledSequences(np.where(spoken[..., np.newaxis], u / rms, 0.0), labels)
