"""The random weights of hotSpring, number for number, so that its stored networks can be made again from their seeds.

hotSpring (`md/reservoir/mod.rs`) draws with xoshiro256++ (D. Blackman, S. Vigna, "Scrambled linear pseudorandom number
generators", 2021) and a seeding of its own. For new networks use `generate.make_esn`.
"""

import math

import numpy as np

from metalforge.core import Doubles, SpecError

from .activations import ActivationName
from .weights import EsnWeights

WORD = (1 << 64) - 1
SEED_OFFSET = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of SplitMix64, from which hotSpring's seeding is made."""
SMALLEST_UNIFORM = 1e-30
"""hotSpring's guard against log 0."""
POWER_ITERATIONS = 100
SMALLEST_RADIUS = 1e-10
"""Below this hotSpring leaves the matrix as it was drawn."""


class OriginRandom:
    """A stream of numbers: xoshiro256++ as published, seeded as hotSpring does it.

    The four words of the state are SplitMix64 outputs, except that the running value is offset once, not before every
    word; so no other library gives these numbers for the same seed.
    """

    def __init__(self, seed: int) -> None:
        z = seed + SEED_OFFSET & WORD
        words = []
        for _ in range(4):
            z = (z ^ z >> 30) * MIX_1 & WORD
            z = (z ^ z >> 27) * MIX_2 & WORD
            words.append(z ^ z >> 31)
        self.state: tuple[int, int, int, int] = (words[0], words[1], words[2], words[3])

    def word(self) -> int:
        """Return the next 64 bits."""
        s0, s1, s2, s3 = self.state
        result = _rotated(s0 + s3 & WORD, 23) + s0 & WORD
        shifted = s1 << 17 & WORD
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        self.state = s0, s1, s2 ^ shifted, _rotated(s3, 45)
        return result

    def uniform(self) -> float:
        """Return a number from 0 to just below 1, a multiple of 2^-53."""
        return float((self.word() >> 11) * 2.0**-53)

    def normal(self) -> float:
        """Return a standard normal number: the cosine branch of Box and Muller, two uniforms for each."""
        radius = math.sqrt(-2 * math.log(max(self.uniform(), SMALLEST_UNIFORM)))
        return radius * math.cos(2 * math.pi * self.uniform())


def origin_weights(
    *,
    inputs: int = 8,
    units: int = 50,
    seed: int = 42,
    spectral_radius: float = 0.95,
    connectivity: float = 0.2,
    leak: float = 0.3,
    activation: ActivationName = "tanh",
) -> EsnWeights:
    """Return the network that hotSpring makes of these numbers: float64, without a bias and without a readout.

    W_in is uniform in -0.5 .. 0.5, row by row; then each recurrent weight draws a uniform u and, if u < connectivity, a
    normal number. hotSpring scales by the norm after 100 power iterations, which on a matrix without symmetry is not
    the spectral radius: asked for 0.95 it gives 0.937 for 5 inputs and seed 107, 0.974 for 8 inputs and seed 99, and
    0.852 for 8 inputs and seed 107. The matrices are kept as they are; `weights.spectral_radius` says what they have.
    """
    if units < 1 or inputs < 1 or not 0 <= seed <= WORD:
        raise SpecError(
            "a network of hotSpring wants at least one unit and one input, and a seed of 64 bits, not negative. "
            f"Got {units}, {inputs} and {seed}"
        )
    random = OriginRandom(seed)
    w_in = np.array([random.uniform() - 0.5 for _ in range(units * inputs)]).reshape(units, inputs)
    drawn = [random.normal() if random.uniform() < connectivity else 0.0 for _ in range(units * units)]
    w_res = np.array(drawn).reshape(units, units)
    norm = _norm_after_power_iterations(w_res)
    if norm > SMALLEST_RADIUS:
        w_res = w_res * (spectral_radius / norm)
    return EsnWeights(w_in=w_in, w_res=w_res, leak=leak, activation=activation)


def _norm_after_power_iterations(matrix: Doubles) -> float:
    """Return |W v| after v = W v / |W v| was done 99 times, from equal entries; 0 when the iterates vanish."""
    v = np.full(len(matrix), 1 / math.sqrt(len(matrix)))
    norm = 0.0
    for _ in range(POWER_ITERATIONS):
        v = matrix @ v
        norm = float(np.linalg.norm(v))
        if norm < SMALLEST_UNIFORM:
            return 0.0
        v /= norm
    return norm


def _rotated(word: int, by: int) -> int:
    return word << by & WORD | word >> 64 - by
