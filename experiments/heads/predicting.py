r"""What a network says of chains on each substrate: software, the emulated NPU in three ways, and without memory.

- `f32-software`: the network as it was trained.
- `npu-w4a8-refit`: four-bit weights on the NPU, tanh on the host, heads fitted again to the states that come out.
- `npu-w8a8`: reservoir and heads on the NPU as they are, tanh on the host.
- `npu-native`: the NPU's own bounded ReLU in place of tanh, four bits throughout, heads fitted again.
- `no-memory`: software without recurrence, to see what memory is worth; heads fitted again.

Whatever is fitted or calibrated again sees training chains only.

An ensemble is several reservoirs with the same heads: the mean of their answers, and an interval around it.

    spread^2 = variance of the members + noise^2
    interval = mean +- q_p spread,        q_p = quantile of |mean - label| / spread over couplings left out

Members differ by the seed of their reservoirs, so their variance says how much an answer depends on the draw; `noise`
is a head's error on couplings that were left out when it was fitted. Errors are not normal, so q_p is read off the
left-out answers (split conformal prediction: V. Vovk et al., 2005), for 68 % and 95 % apart. Only couplings between
others of their lattice count: at the edge of a scan leaving one out is extrapolation, which no interval is meant for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.program import ConductorProgram
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import side_by_side
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

from .labels import Example
from .training import Trained, fit_heads, reservoir, train_heads, without_memory

LEVELS = (0.68, 0.95)
NORMAL = (0.994, 1.960)
"""Half widths of these levels in standard deviations, for heads with nothing left out to read them off."""


class Predicted(NamedTuple):
    """A head's value for every trajectory, and half the width of its intervals at `LEVELS`.

    Of two classes the value is the probability of the second.
    """

    value: Doubles
    spread: Doubles
    half_68: Doubles
    half_95: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """Networks with one layout; `widths` are the half widths of a head's intervals in units of its spread."""

    members: tuple[Trained, ...]
    widths: Mapping[str, tuple[float, float]]

    def predict(self, inputs: Doubles) -> dict[str, Predicted]:
        """Return every trained head along a chain (trajectories, features) from rest."""
        answers = [values_of(member, inputs) for member in self.members]
        found = {}
        for name in answers[0]:
            value, spread = _pooled([a[name] for a in answers], [m.fits[name].noise for m in self.members])
            narrow, wide = self.widths[name]
            found[name] = Predicted(value, spread, narrow * spread, wide * spread)
        return found


def ensemble_of(members: Sequence[Trained]) -> Ensemble:
    """Return an ensemble of networks that were fitted to the same chains."""
    if not members:
        raise SpecError("an ensemble wants at least one member")
    return Ensemble(members=tuple(members), widths={name: _widths(name, members) for name in members[0].fits})


def _widths(name: str, members: Sequence[Trained]) -> tuple[float, float]:
    """Return the quantiles of left-out errors in units of the spread."""
    rows = [member.left_out[name] for member in members if name in member.left_out]
    if len(rows) < len(members) or not rows[0].inside.any():
        return NORMAL
    value, spread = _pooled([row.said for row in rows], [member.fits[name].noise for member in members])
    pulls = (np.abs(value - rows[0].label) / spread)[rows[0].inside]
    # Chains, not rows, are independent: with few of them a quantile is taken a little further out.
    chains = len(np.unique(rows[0].chain[rows[0].inside]))
    levels = [min(level * (1 + 1 / chains), 1.0) for level in LEVELS]
    narrow, wide = np.quantile(pulls, levels)
    return float(narrow), float(wide)


def _pooled(said: Sequence[Doubles], noise: Sequence[float]) -> tuple[Doubles, Doubles]:
    """Return mean and spread of what members say."""
    stack = np.stack(said)
    return stack.mean(axis=0), np.sqrt(stack.var(axis=0) + float(np.mean(noise)) ** 2)


def values_of(trained: Trained, inputs: Doubles) -> dict[str, Doubles]:
    """Return every trained head of one network along a chain; of two classes, the probability of the second."""
    seen = inputs.astype(trained.weights.dtype)
    return _decoded(trained, predict(trained.weights, seen), seen)


def _decoded(trained: Trained, outputs: NDArray[Any], inputs: NDArray[Any]) -> dict[str, Doubles]:
    values = ConductorProgram(weights=trained.weights).decode(outputs, inputs)
    return {name: np.asarray(values[name][:, -1]) for name in trained.fits}


def train_ensemble(
    examples: Sequence[Example], *, members: int = 3, seed: int = 1, layout: HeadLayout = CONDUCTOR_11
) -> Ensemble:
    """Return so many networks, of seeds `seed`, `seed` + 1 and so on."""
    return ensemble_of([train_heads(examples, weights=reservoir(seed + k), layout=layout) for k in range(members)])


Route: TypeAlias = Literal["f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory"]
ROUTES: tuple[Route, ...] = ("f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory")
Predictions: TypeAlias = Mapping[str, Sequence[Doubles]]
"""By head, one array (trajectories,) a chain."""
_Placing: TypeAlias = Callable[[HybridEsn, NpuDevice], HybridEsn]
_REFITTED: Mapping[str, _Placing] = {
    "npu-w4a8-refit": lambda esn, device: esn.with_hardware_linear(device, precision="W4A8"),
    "npu-native": lambda esn, device: esn.with_hardware_native(device),
}


def layout_of(trained: Trained) -> HeadLayout:
    """Return the heads of a network."""
    assert trained.weights.heads is not None
    return trained.weights.heads


def predictions(route: Route, trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> Predictions:
    """Return what a network says of the test chains on a route."""
    if route == "no-memory":
        blind = without_memory(trained.weights)
        trained = train_heads(train, weights=blind, layout=layout_of(trained))
    if route in ("f32-software", "no-memory"):
        answers: list[Mapping[str, Doubles]] = [values_of(trained, example.inputs) for example in test]
    elif route == "npu-w8a8":
        answers = _whole_on_device(trained, train, test)
    elif route in _REFITTED:
        answers = _refitted(trained, train, test, _REFITTED[route])
    else:
        raise SpecError(f"`route` must be one of {', '.join(ROUTES)}. Got `{route}`")
    return {name: [answer[name] for answer in answers] for name in trained.fits}


def _calibration_inputs(train: Sequence[Example]) -> Doubles:
    """Return some training chains of one length, to measure ranges on."""
    longest = max(len(example.inputs) for example in train)
    return np.stack([example.inputs for example in train if len(example.inputs) == longest][:32])


def _whole_on_device(
    trained: Trained, train: Sequence[Example], test: Sequence[Example]
) -> list[Mapping[str, Doubles]]:
    """Return what reservoir and heads say when both are on the emulated NPU, with tanh on the host."""
    layout, calibration = layout_of(trained), None if trained.weights.ranges else _calibration_inputs(train)
    program = ConductorProgram(weights=trained.weights)
    with EmulatedDevice() as device, program.run_on(device, precision="W8A8", calibration=calibration) as running:

        def said(batch: Doubles) -> Doubles:
            running.reset(batch=len(batch))
            steps = range(batch.shape[1])
            return np.stack([running.run_conductor(batch[:, t]).vector for t in steps], axis=1)

        values = side_by_side([example.inputs for example in test], said)
    return [{name: y[:, layout.span(name).stop - 1] for name in trained.fits} for y in values]


def _refitted(
    trained: Trained, train: Sequence[Example], test: Sequence[Example], place: _Placing
) -> list[Mapping[str, Doubles]]:
    """Return what heads say that were fitted again to the states of the emulated NPU."""
    weights = trained.weights
    calibrated = HybridEsn.from_weights(weights, calibration=_calibration_inputs(train).astype(weights.dtype))
    with EmulatedDevice() as device:
        chip = place(calibrated, device)

        def seen(examples: Sequence[Example]) -> list[Doubles]:
            inputs = [example.inputs.astype(weights.dtype) for example in examples]
            return side_by_side(inputs, lambda u: np.concatenate([chip.states(u), u], axis=2).astype(np.float64))

        again = fit_heads(train, seen(train), weights=weights, layout=layout_of(trained))
        readout = again.weights
        assert readout.w_out is not None
        assert readout.out_bias is not None
        answers: list[Mapping[str, Doubles]] = [
            _decoded(again, x @ readout.w_out.T + readout.out_bias, example.inputs)
            for x, example in zip(seen(test), test, strict=True)
        ]
        chip.close()
    return answers
