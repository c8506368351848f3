"""Markov chains in, numbers with honest errors out: Gamma method, resampling, thermalisation cuts and reweighting.

Autocorrelation times are counted in measurements and are 0.5 for uncorrelated data, everywhere.
"""

from .chiral import ChiralSusceptibility, chiral_susceptibility
from .estimate import Estimate, with_error
from .gamma import autocorrelation, effective_sample_size, gamma_method, gamma_method_derived
from .obs import to_obs
from .peak import Peak, locate_peak
from .resample import Resampled, block_length, bootstrap, jackknife
from .reweight import JointRuns, ReweightedCurve, RunSummary, combine, reweight
from .runs import BetaRun, neighbour_overlaps
from .susceptibility import binder_b4, susceptibility
from .table import read_csv, write_csv
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
    "JointRuns",
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
    "read_csv",
    "reweight",
    "susceptibility",
    "to_obs",
    "with_error",
    "write_csv",
]
