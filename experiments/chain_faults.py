r"""Faults put into a running chain on purpose: what checks of a chain are tested and measured with.

    end = inject(chain, "wrong_beta", np.random.default_rng(7))     # from the next update on
    run.step()
    end()                                                            # the chain is as it should be from here on

| fault | what happens |
| --- | --- |
| `flip_exponent` | one bit of the exponent of a link's real is flipped, once |
| `flip_mantissa` | one of the four highest bits of its mantissa, once |
| `flip_low` | one bit of the lower half of its mantissa, once |
| `lost_reunitarisation` | links are not projected to SU(3) any more |
| `wrong_beta` | updates are made at another coupling, `WRONG_BETA` off, and the chain does not know |
| `stuck_stream` | every update draws the random numbers of the one before the fault |
| `repeated_stream` | updates draw the random numbers of those `BACK` before them |
| `nan` | one update starts from a link that is not a number; the next one finds the links as they were before it |

The random generator says where, and in which direction. A `ChainRun` raises `ChainFaultError` at the update of a `nan`;
the step after it goes on. Links are reached where the CPU keeps them, so chains on a card take no flips.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError, require_one_of
from metalforge.lattice.chain import Chain, UpdateInfo
from metalforge.lattice.field import GaugeField

FaultName = Literal[
    "flip_exponent",
    "flip_mantissa",
    "flip_low",
    "lost_reunitarisation",
    "wrong_beta",
    "stuck_stream",
    "repeated_stream",
    "nan",
]
FAULTS: tuple[FaultName, ...] = get_args(FaultName)
"""All of them."""
WRONG_BETA = 0.1
"""How far off the coupling of `wrong_beta` is, up or down."""
BACK = 16
"""Updates by which a `repeated_stream` is behind."""

_BITS: dict[str, dict[str, range]] = {
    "f64": {"flip_low": range(26), "flip_mantissa": range(48, 52), "flip_exponent": range(52, 63)},
    "f32": {"flip_low": range(11), "flip_mantissa": range(19, 23), "flip_exponent": range(23, 31)},
}
Update = Callable[..., UpdateInfo]
_UPDATES = ("update", "quenched_update")


def inject(chain: Chain, fault: FaultName, rng: np.random.Generator) -> Callable[[], None]:
    """Put a fault into a chain, to act from its next update on; return what ends it.

    A fault is the object's: a chain that is loaded from a checkpoint, or made anew, has none.
    """
    require_one_of(*FAULTS, fault=fault)
    if fault in _BITS["f64"]:
        flip_bit(chain.field, _BITS[chain.field.precision][fault], rng)
        return lambda: None
    if fault == "lost_reunitarisation":
        vars(chain.field)["reunitarise"] = lambda: None
        return lambda: vars(chain.field).pop("reunitarise", None)
    if fault == "nan":
        return _wrap(chain, _heals(chain, rng))
    if fault == "wrong_beta":
        beta = chain.spec.beta + (WRONG_BETA if rng.random() < 0.5 else -WRONG_BETA)
        return _wrap(chain, lambda original, options: _elsewhere(chain, original, options, beta=beta))
    stuck = max(chain.step - 1, 0) if fault == "stuck_stream" else None

    def elsewhen(original: Update, options: dict[str, Any]) -> UpdateInfo:
        step = max(chain.step - BACK, 0) if stuck is None else stuck
        return _elsewhere(chain, original, options, step=step)

    return _wrap(chain, elsewhen)


def flip_bit(field: GaugeField, bits: range, rng: np.random.Generator) -> None:
    """Flip one of these bits, counted from the lowest, of one real of the links."""
    words = _reals(field).view(np.uint64 if field.precision == "f64" else np.uint32)
    words[_somewhere(words, rng)] ^= words.dtype.type(1 << int(rng.choice(bits)))


def _wrap(chain: Chain, around: Callable[[Update, dict[str, Any]], UpdateInfo]) -> Callable[[], None]:
    """Let `around` make the chain's updates, of either kind; return what takes it away."""
    originals: dict[str, Update] = {name: getattr(chain, name) for name in _UPDATES}
    within = False

    def updating(name: str, **options: Any) -> UpdateInfo:
        nonlocal within
        original = originals[name]
        if within:  # an update by sweeps is a quenched update
            return original(**options)
        within = True
        try:
            return around(original, options)
        finally:
            within = False

    vars(chain).update({name: partial(updating, name) for name in _UPDATES})
    return partial(_unwrap, chain)


def _unwrap(chain: Chain) -> None:
    for name in _UPDATES:
        vars(chain).pop(name, None)


def _elsewhere(
    chain: Chain, original: Update, options: dict[str, Any], *, beta: float | None = None, step: int | None = None
) -> UpdateInfo:
    """Make an update with another coupling or the random numbers of another step; the chain counts as if it had not."""
    spec, before = chain.spec, chain.step
    chain.spec = spec if beta is None else msgspec.structs.replace(spec, beta=beta)
    chain.step = before if step is None else step
    try:
        info = original(**options)
    finally:
        chain.spec, chain.step = spec, before
    chain.step = before + 1
    return msgspec.structs.replace(info, step=chain.step)


def _heals(chain: Chain, rng: np.random.Generator) -> Callable[[Update, dict[str, Any]], UpdateInfo]:
    """Put what is not a number into a link; return an update that leaves it there, and then finds it mended."""
    kept, reals, made = chain.field.copy(), _reals(chain.field), False
    reals[_somewhere(reals, rng)] = np.nan

    def around(original: Update, options: dict[str, Any]) -> UpdateInfo:
        nonlocal made
        if made:
            chain.field.assign(kept)
            _unwrap(chain)
        made = True
        return original(**options)

    return around


def _somewhere(links: NDArray[Any], rng: np.random.Generator) -> tuple[int, ...]:
    """Return a place in the first two rows of some link; projections make the third."""
    vectors, directions, _, lanes = links.shape  # the CPU's layout
    return tuple(int(rng.integers(n)) for n in (vectors, directions, 12, lanes))


def _reals(field: GaugeField) -> NDArray[Any]:
    if not isinstance(field.links, np.ndarray):
        raise SpecError(f"faults are put into links that the CPU keeps. Got a chain on {field.engine.name}")
    return field.links
