"""Networks on disk: metalforge's safetensors and hotSpring's JSON, in and out, chosen by the name of the file.

Nothing that is read is executed or trusted: every file is checked whole, and what is wrong with it is a SpecError that
names it. Writing replaces the file in one step.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metalforge.core import FeatureSchema, PathLike, SpecError, naming, opened, replacing

from . import tensors
from .sparse import to_dense
from .weights import EsnWeights, check_echo_state

LARGEST_CHECKED = 2000
"""Units up to which the spectral radius of a sparse matrix is found on loading. A small file can name millions of
units, and eigenvalues may need the matrix in full; a dense one is as large as its file."""


def save_weights(weights: EsnWeights, path: PathLike) -> None:
    """Write a network to `path`: .safetensors keeps everything, .json is hotSpring's and refuses what it would lose.

    The file holds the old network or the new one, whatever fails in between.
    """
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".json"):
        raise SpecError(f"{path}: a network is written as .safetensors or .json. Got `{suffix}`")
    with naming(path, "written"):
        if suffix == ".json":
            from . import hotspring

            data = hotspring.encode(weights)
        else:
            data = tensors.encode(weights)
    with replacing(path) as stream:
        stream.write(data)


def load_weights(path: PathLike, *, check_stability: bool = True) -> EsnWeights:
    """Return the network in a file: .safetensors or .json by name, by its first bytes under any other name.

    Warns when its spectral radius is above 1 (`check_stability=False` saves the time to find it). Of a sparse matrix of
    more than 2000 units it is not looked for; `check_echo_state` does it.
    """
    with opened(path) as (stream, size):
        kind = Path(path).suffix
        if kind not in (".safetensors", ".json"):
            kind = _guess(stream.read(9))
            stream.seek(0)
        if kind == ".json":
            from . import hotspring

            weights = hotspring.decode(stream, size)
        else:
            weights = tensors.read(path)
    if check_stability:
        _warn_when_unstable(weights)
    return weights


def as_weights(source: Any) -> EsnWeights:
    """Return the network of an `EsnWeights`, of a fitted estimator, of a model of reservoirpy, or in a file."""
    if isinstance(source, str | os.PathLike):
        return load_weights(source)
    from .reservoirpy_ import from_reservoirpy, is_reservoirpy

    if is_reservoirpy(source):
        return from_reservoirpy(source)
    found = getattr(source, "weights_", source)
    if not isinstance(found, EsnWeights):
        hint = "\nhint: fit it first" if hasattr(source, "fit") else ""
        raise SpecError(
            "a network is an EsnWeights, a fitted EsnClassifier or EsnRegressor, a model of reservoirpy, or a path. "
            f"Got {type(source).__name__}{hint}"
        )
    return found


def expect_features(weights: EsnWeights, schema: FeatureSchema) -> None:
    """Return if the network was made for exactly these features; raises SpecError that says what differs.

    Five numbers read as six, or the same six in another order, would not fail: they would be answered with noise.
    """
    have = weights.features
    if have is None:
        raise SpecError(
            f"these weights do not say which features their {weights.inputs} inputs are; wanted `{schema.name}`, "
            f"{len(schema)} features"
            "\nhint: if you know that they agree: dataclasses.replace(weights, features=schema)"
        )
    if have != schema:
        pairs = enumerate(zip(have.features, schema.features, strict=False))
        differ = (f"feature {i} is {one}, wanted {other}" for i, (one, other) in pairs if one != other)
        counts = f"it has {len(have)} features, wanted {len(schema)}; names and versions may differ"
        raise SpecError(
            f"these weights were made for feature schema {have.name!r} version {have.version}, not {schema.name!r} "
            f"version {schema.version}: {next(differ, counts)}"
        )


def _guess(head: bytes) -> str:
    # A safetensors file begins with the length of its header, eight bytes, and the header with a brace.
    if head[8:9] == b"{":
        return ".safetensors"
    if head[:1] == b"{":
        return ".json"
    raise SpecError("neither safetensors nor JSON: it begins with " + (head[:9].hex(" ") or "nothing"))


def _warn_when_unstable(weights: EsnWeights) -> None:
    w = weights.w_res
    if not isinstance(w, np.ndarray):
        if weights.units > LARGEST_CHECKED:
            return
        # As CSR the largest eigenvalue is found by products, whichever kind of sparse matrix it is.
        w = csr_array(to_dense(w))
    size = abs(w)
    # No eigenvalue is larger than the largest row or column sum; rings and delay lines, hard to iterate on, end here.
    if min(size.sum(axis=0).max(), size.sum(axis=1).max()) > 1:
        check_echo_state(replace(weights, w_res=w))
