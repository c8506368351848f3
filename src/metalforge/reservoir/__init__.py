"""Echo state networks: weights and inputs go in, states and readouts come out. Knows no device."""

from .activations import ACTIVATIONS, activation
from .sparse import BlockSparse
from .weights import EsnWeights, UnstableReservoirWarning, check_echo_state, spectral_radius

__all__ = [
    "ACTIVATIONS",
    "BlockSparse",
    "EsnWeights",
    "UnstableReservoirWarning",
    "activation",
    "check_echo_state",
    "spectral_radius",
]
