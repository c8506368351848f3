"""What every checkpoint of particles has: where they are, their spec, the engine they were on, the owner's notes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Form, PathLike, Sealed, SpecError, write_sealed
from metalforge.native import Engine

from .box import Particles
from .spec import PlasmaSpec

PLACES = ("positions", "boxes", "velocities")
_SPECS = msgspec.json.Decoder(PlasmaSpec)


def write_checkpoint(
    path: PathLike,
    form: Form,
    spec: PlasmaSpec,
    engine: Engine,
    particles: Particles,
    arrays: Mapping[str, NDArray[Any]],
    notes: Mapping[str, msgspec.Struct],
) -> None:
    """Write a checkpoint of this form with its owner's arrays and notes; an old one is replaced whole or not at all."""
    places = {name: np.asarray(getattr(particles, name), np.float64) for name in PLACES}
    texts = {name: msgspec.json.encode(record).decode() for name, record in {"spec_json": spec, **notes}.items()}
    write_sealed(path, form, Sealed({**places, **arrays}, texts, engine.name, engine.family, spec.precision))


def spec_of(sealed: Sealed) -> PlasmaSpec:
    """Return the spec of a checkpoint."""
    return _SPECS.decode(sealed.texts["spec_json"])


def particles_of(sealed: Sealed, spec: PlasmaSpec, step: int) -> Particles:
    """Return the particles of a checkpoint; raises where they are not those of the spec, or nowhere."""
    shape = (spec.particles, 3)
    for name in PLACES:
        if sealed.arrays[name].shape != shape or not np.isfinite(sealed.arrays[name]).all():
            raise SpecError(f"{name}: wanted {shape} finite numbers, got {sealed.arrays[name].shape}")
    positions, boxes, velocities = (sealed.arrays[name] for name in PLACES)
    return Particles(
        positions.astype(np.float64), boxes.astype(np.int32), velocities.astype(np.float64), spec.length, step
    )
