"""Markov chains in, numbers with honest errors out: Gamma method, resampling, thermalisation cuts and reweighting.

Autocorrelation times are counted in measurements and are 0.5 for uncorrelated data, everywhere.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

from .estimate import Estimate, with_error
from .gamma import autocorrelation, gamma_method, gamma_method_derived, quoted
from .histograms import Joint
from .mbar import NotLocated
from .susceptibility import ChiralSusceptibility, chiral_susceptibility, susceptibility
from .thermalisation import HotColdAgreement, Truncation, hot_cold_agreement, mser

if TYPE_CHECKING:
    from .estimate import MIN_LENGTH, Value
    from .gamma import lagged_sums, pooled_tau, value_of
    from .histograms import (
        BEYOND,
        MIN_EFFECTIVE,
        MIN_OVERLAP,
        ChainRows,
        half_width,
        join,
        refined_maxima,
        variance,
    )
    from .mbar import pair_overlap
    from .obs import to_obs
    from .resample import Resampled, block_length, bootstrap, jackknife
    from .susceptibility import kurtosis

__all__ = [
    "ChiralSusceptibility",
    "Estimate",
    "HotColdAgreement",
    "Joint",
    "NotLocated",
    "Resampled",
    "Truncation",
    "autocorrelation",
    "block_length",
    "bootstrap",
    "chiral_susceptibility",
    "gamma_method",
    "gamma_method_derived",
    "hot_cold_agreement",
    "jackknife",
    "mser",
    "susceptibility",
    "to_obs",
    "with_error",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
