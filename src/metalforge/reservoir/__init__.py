"""Echo state networks: weights and inputs go in, states and readouts come out. Knows no device.

What a person needs first is here; the rest by module: `online` (LMS, RLS), `gradient` (backpropagation through time),
`readout` (ridge), `matrices` (random matrices), `datasets`, `metrics`, `files`, `origin`, and
`estimators` (scikit-learn), which is imported only when it is asked for.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .activations import ACTIVATIONS, ActivationName, activation, leaky_step
    from .datasets import lorenz, mackey_glass, narma, to_forecasting
    from .engine import Affine, EsnEngine, init
    from .files import as_weights, expect_features, load_weights, save_weights
    from .generate import make_esn
    from .gradient import Gradients, loss_gradient
    from .heads import BaseCurves, HeadValues, decoder_of, head_values
    from .least_squares import LeastSquares, absorb
    from .losses import LossName, LossSlope, as_targets, check_loss, loss_and_slope
    from .matrices import scaled
    from .metrics import Interval, nrmse, politis_white, rmse, wilson
    from .network import EsnNetwork, finite_input
    from .origin import origin_weights
    from .readout import NormalEquations, Readout, ridge, select_ridge
    from .reservoirpy_ import from_reservoirpy
    from .running import predict
    from .series import DivergenceError, Layout, Series, SeriesError, as_series, as_steps, side_by_side, steps_first
    from .sparse import BlockSparse, to_dense, weights_of
    from .training import collect, fit
    from .weights import (
        DENSE_EIGENVALUES,
        EsnWeights,
        Ranges,
        UnstableReservoirWarning,
        check_echo_state,
        spectral_radius,
    )

__all__ = [
    "ACTIVATIONS",
    "BlockSparse",
    "EsnEngine",
    "EsnNetwork",
    "EsnWeights",
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
