"""Echo state networks: weights and inputs go in, states and readouts come out. Knows no device.

What a person needs first is here; the rest by module: `online` (LMS, RLS), `gradient` (backpropagation through time),
`readout` (ridge), `matrices` (random matrices), `datasets`, `metrics`, `files`, `origin`, and
`estimators` (scikit-learn), which is imported only when it is asked for.
"""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .activations import ACTIVATIONS, activation
    from .engine import EsnEngine
    from .files import load_weights, save_weights
    from .generate import make_esn
    from .metrics import nrmse
    from .origin import origin_weights
    from .reservoir import Reservoir
    from .reservoirpy_ import from_reservoirpy
    from .running import predict
    from .sparse import BlockSparse
    from .training import fit
    from .weights import EsnWeights, UnstableReservoirWarning, check_echo_state, spectral_radius

__all__ = [
    "ACTIVATIONS",
    "BlockSparse",
    "EsnEngine",
    "EsnWeights",
    "Reservoir",
    "UnstableReservoirWarning",
    "activation",
    "check_echo_state",
    "fit",
    "from_reservoirpy",
    "load_weights",
    "make_esn",
    "nrmse",
    "origin_weights",
    "predict",
    "save_weights",
    "spectral_radius",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
