"""Markov chains in, numbers with honest errors out: Gamma method, resampling, thermalisation cuts and reweighting.

Autocorrelation times are counted in measurements and are 0.5 for uncorrelated data, everywhere.
"""

from .chiral import ChiralSusceptibility, chiral_susceptibility
from .estimate import Estimate, with_error
from .gamma import autocorrelation, effective_sample_size, gamma_method, gamma_method_derived
from .histograms import Joint, RunSummary
from .mbar import NotLocated
from .obs import to_obs
from .peak import Peak, locate_peak
from .resample import Resampled, block_length, bootstrap, jackknife
from .reweight import BetaRun, ReweightedCurve, combine, neighbour_overlaps, reweight
from .susceptibility import binder_b4, susceptibility
from .thermalisation import (
    HotColdAgreement,
    Thermalisation,
    Truncation,
    hot_cold_agreement,
    is_thermalised,
    mser,
)

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
    "RunSummary",
    "Thermalisation",
    "Truncation",
    "autocorrelation",
    "binder_b4",
    "block_length",
    "bootstrap",
    "chiral_susceptibility",
    "combine",
    "effective_sample_size",
    "gamma_method",
    "gamma_method_derived",
    "hot_cold_agreement",
    "is_thermalised",
    "jackknife",
    "locate_peak",
    "mser",
    "neighbour_overlaps",
    "reweight",
    "susceptibility",
    "to_obs",
    "with_error",
]
