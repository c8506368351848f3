"""Series handed over to pyerrors (extra `analysis`), where many users do the rest of their analysis."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import PluginError, SpecError

from .estimate import as_series


def to_obs(series: ArrayLike | Sequence[ArrayLike], name: str, replica: str | Sequence[str] | None = None) -> Any:
    """Return a ``pyerrors.Obs`` of one chain, or of several replicas of one ensemble.

    Call ``.gamma_method()`` on the result before printing it, as with any Obs.

    Parameters
    ----------
    series
        One series, or a list of series when there are several replicas; these may differ in length.
    name
        The ensemble. Obs with different ensemble names are uncorrelated for pyerrors: give every chain its own.
    replica
        Names of the replicas, ``r0``, ``r1``, ... unless told; a single series without one is named `name` alone.
    """
    several = isinstance(series, list | tuple) and len(series) > 0 and np.ndim(series[0]) == 1
    chains = [as_series(one) for one in series] if several else [as_series(series)]  # type: ignore[union-attr, arg-type]
    labels = _labels(replica, len(chains), several)
    if "|" in name or not name:
        raise SpecError(
            f"`name` must be an ensemble's name without `|`. Got `{name}`\nhint: use `replica` for the rest"
        )
    names = [f"{name}|{label}" if label else name for label in labels]
    return _pyerrors().Obs(chains, names)


def _labels(replica: str | Sequence[str] | None, n_chains: int, several: bool) -> list[str]:
    if replica is None:
        return [f"r{i}" for i in range(n_chains)] if several else [""]
    labels = [replica] if isinstance(replica, str) else list(replica)
    if len(labels) != n_chains or len(set(labels)) != n_chains or not all(labels):
        raise SpecError(f"`replica` must give {n_chains} different names, one for each series. Got {labels}")
    return labels


def _pyerrors() -> Any:
    with warnings.catch_warnings():
        # pyerrors imports scipy.odr for its fits; the deprecation is its own to settle.
        warnings.filterwarnings("ignore", message="`scipy.odr` is deprecated", category=DeprecationWarning)
        try:
            import pyerrors  # type: ignore[import-untyped]
        except ImportError as error:
            raise PluginError(
                f"`to_obs` wants the package `pyerrors` ({error})\nhint: pip install 'metalforge[analysis]'"
            ) from error
    return pyerrors
