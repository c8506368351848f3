"""Arrays that take long to make, kept in the user's cache folder under a name and the hash of what made them.

``METALFORGE_CACHE`` names another folder. Files hold numbers only and are checked when they are read; a file that is
broken is made again.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import MetalforgeError
from metalforge.core.files import cache_folder

A = TypeVar("A")
Arrays = dict[str, NDArray[np.float64]]


def cached(
    name: str, recipe: msgspec.Struct, make: Callable[[], A], load: Callable[[Path], A], save: Callable[[A, Path], None]
) -> A:
    """Return what `make` gives, from the file of this name (`*` is the recipe's hash) if it was made before."""
    key = hashlib.sha256(msgspec.json.encode(recipe, order="deterministic")).hexdigest()[:16]
    path = cache_folder() / name.replace("*", key)
    try:
        return load(path)
    except (MetalforgeError, OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass  # not there, of an older format, or damaged: it is made again
    made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_stem(f"{path.stem}.{os.getpid()}")
        save(made, partial)
        partial.replace(path)
    except (MetalforgeError, OSError):
        pass  # a full or read-only disk costs time at the next run, nothing else
    return made


def cached_arrays(name: str, recipe: msgspec.Struct, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `make` gives, from the cache if the same recipe was made before."""
    return cached(f"{name}-*.npz", recipe, make, _load, lambda arrays, path: np.savez_compressed(path, **arrays))  # type: ignore[arg-type]


def _load(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {field: stored[field].astype(np.float64) for field in stored.files}
