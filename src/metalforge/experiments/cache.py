"""Arrays that take long to make, kept in the user's cache folder under a name and the hash of what made them.

``METALFORGE_CACHE`` names another folder. Files hold numbers only and are checked when they are read; a file that is
broken is made again.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["cache_folder", "cached_arrays"]

Arrays = dict[str, NDArray[np.float64]]


def cache_folder() -> Path:
    """Return where made things are kept."""
    if named := os.environ.get("METALFORGE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metalforge"


def cached_arrays(name: str, recipe: msgspec.Struct, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `make` gives, from the cache if the same recipe was made before."""
    key = hashlib.sha256(msgspec.json.encode(recipe, order="deterministic")).hexdigest()[:16]
    path = cache_folder() / f"{name}-{key}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {field: stored[field].astype(np.float64) for field in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass
    arrays = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]  # arrays by name
        partial.replace(path)
    except OSError:
        pass  # a full or read-only disk costs time at the next run, nothing else
    return arrays
