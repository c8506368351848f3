"""Arrays that take long to make, kept in the user's cache folder under a name and the hash of what made them.

``METALFORGE_CACHE`` names another folder. Files hold numbers only and are checked when they are read; a file that is
broken is made again.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.files import cache_folder

Arrays = dict[str, NDArray[np.float64]]


def cached_arrays(name: str, recipe: msgspec.Struct, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `make` gives, from the cache if the same recipe was made before."""
    key = hashlib.sha256(msgspec.json.encode(recipe, order="deterministic")).hexdigest()[:16]
    path = cache_folder() / f"{name}-{key}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {field: stored[field].astype(np.float64) for field in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass  # not there, of an older format, or damaged: it is made again
    made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_stem(f"{path.stem}.{os.getpid()}")
        np.savez_compressed(partial, **made)  # type: ignore[arg-type]
        partial.replace(path)
    except OSError:
        pass  # a full or read-only disk costs time at the next run, nothing else
    return made
