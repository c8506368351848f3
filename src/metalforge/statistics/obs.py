"""Series handed over to pyerrors (extra `analysis`), where many users do the rest of their analysis."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import PluginError, SpecError

from .estimate import as_series


def to_obs(series: ArrayLike | Sequence[ArrayLike], name: str) -> Any:
    """Return a ``pyerrors.Obs`` of one chain, or of a list of chains: replicas ``r0``, ``r1``, ... of one ensemble.

    Call ``.gamma_method()`` on the result before printing it, as with any Obs. Obs with different ensemble names are
    uncorrelated for pyerrors: give every ensemble its own `name`.
    """
    if "|" in name or not name:
        raise SpecError(f"`name` must be an ensemble's name without `|`. Got `{name}`")
    if isinstance(series, list | tuple) and len(series) > 0 and np.ndim(series[0]) == 1:
        names, chains = [f"{name}|r{i}" for i in range(len(series))], [as_series(one) for one in series]
    else:
        names, chains = [name], [as_series(series)]  # type: ignore[arg-type]
    with warnings.catch_warnings():
        # pyerrors imports scipy.odr for its fits; the deprecation is its own to settle.
        warnings.filterwarnings("ignore", message="`scipy.odr` is deprecated", category=DeprecationWarning)
        try:
            import pyerrors  # type: ignore[import-untyped]
        except ImportError as error:
            raise PluginError(
                f"`to_obs` wants the package `pyerrors` ({error})\nhint: pip install 'metalforge[analysis]'"
            ) from error
    return pyerrors.Obs(chains, names)
