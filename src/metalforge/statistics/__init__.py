"""Markov chains in, numbers with honest errors out: Gamma method, resampling, thermalisation cuts and reweighting.

Autocorrelation times are counted in measurements and are 0.5 for uncorrelated data, everywhere.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

from .estimate import Estimate, with_error
from .gamma import autocorrelation, gamma_method, gamma_method_derived, quoted
from .histograms import Joint
from .mbar import NotLocated
from .peak import Peak, locate_peak
from .reweight import BetaRun, ReweightedCurve, combine, reweight
from .susceptibility import ChiralSusceptibility, chiral_susceptibility, susceptibility
from .thermalisation import HotColdAgreement, Truncation, hot_cold_agreement, mser

if TYPE_CHECKING:
    from .estimate import MIN_LENGTH, Value
    from .gamma import lagged_sums, pooled_tau, value_of
    from .histograms import BEYOND, MIN_EFFECTIVE, ChainRows, join, variance
    from .mbar import pair_overlap
    from .obs import to_obs
    from .peak import half_width, refined_maxima
    from .resample import Resampled, block_length, bootstrap
    from .reweight import MIN_OVERLAP
    from .susceptibility import kurtosis

__all__ = [
    "BetaRun",
    "ChiralSusceptibility",
    "Estimate",
    "HotColdAgreement",
    "Joint",
    "NotLocated",
    "Peak",
    "Resampled",
    "ReweightedCurve",
    "Truncation",
    "autocorrelation",
    "block_length",
    "bootstrap",
    "chiral_susceptibility",
    "combine",
    "gamma_method",
    "gamma_method_derived",
    "hot_cold_agreement",
    "locate_peak",
    "mser",
    "reweight",
    "susceptibility",
    "to_obs",
    "with_error",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
