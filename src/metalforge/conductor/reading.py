r"""A conductor over trained weights: carried states by chain, readings with their spread, retraining, files.

    value    = mean of the members
    spread^2 = variance of the members + noise^2                    (as in `ensemble`)

One network, or several that share a layout and differ by the draw of their reservoirs. A reading along a chain steps
the chain's state; `read(frame, chain=...)` steps a copy of it, so a trajectory that is half way can be asked about.
The state of a chain is the network's only memory of it: with more open chains than `chains`, a new one is refused
rather than an old one begun again from rest without a word.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.files import expect_features
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice

from .chains import load_corpus
from .dataset import Example, examples
from .decoding import HeadValues
from .features import FEATURES, scaled
from .heads import HeadReading
from .heads_training import HeadFit, fit_heads
from .program import ConductorProgram, ConductorRun
from .weight_files import load_members, save_members

__all__ = ["NetworkConductor", "read_corpus"]

States = tuple[NDArray[Any], ...]
"""The state of every member."""


class NetworkConductor(Closing):
    """The `Conductor` of the worker, over one network or an ensemble. For one thread.

    Parameters
    ----------
    weights
        Of `metalforge conductor train`, or several of one layout; made for the features of `features.FEATURES`.
    device
        Where the products run: None is software. One network at a time fits a device.
    precision, calibration
        Of the device: see `ConductorProgram.run_on`.
    spreads
        Noise by head, in the head's own unit: its error on couplings left out (`HeadFit.noise`). Heads without one
        have the spread of the members alone, and none at all where there is one member.
    chains
        The most chains that are open at once.
    """

    def __init__(
        self,
        weights: EsnWeights | Sequence[EsnWeights],
        *,
        device: NpuDevice | None = None,
        precision: str = "W8A8",
        calibration: ArrayLike | None = None,
        spreads: Mapping[str, float] | None = None,
        chains: int = 1000,
    ) -> None:
        members = (weights,) if isinstance(weights, EsnWeights) else tuple(weights)
        if chains < 1:
            raise SpecError(f"`chains` must be at least 1. Got {chains}")
        if device is not None and len(members) > 1:
            raise SpecError(f"a device takes one network. Got {len(members)}\nhint: run the ensemble in software")
        self._device, self._precision, self._calibration = device, precision, calibration
        self._limit = chains
        self._chains: dict[str, States] = {}
        self._runs: tuple[ConductorRun, ...] = ()
        self.spreads = _checked_spreads(_checked(members), spreads or {})
        self._members = members
        self._runs = self._started(members)
        self._rest: States = tuple(np.zeros(w.units, w.dtype) for w in members)

    @classmethod
    def load(cls, path: PathLike, **options: Any) -> "NetworkConductor":
        """Return the conductor in a file of `export`, or of `save_weights`; `options` are those of the class."""
        members, spreads = load_members(path)
        return cls(members, **{"spreads": spreads} | options)

    @property
    def members(self) -> tuple[EsnWeights, ...]:
        """The networks."""
        return self._members

    @property
    def layout(self) -> HeadLayout:
        """The heads, with which of them are trained."""
        return _readout(self._members[0])[2]

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of the heads."""
        return self.layout.names

    @property
    def chains(self) -> tuple[str, ...]:
        """The open chains, oldest first."""
        return tuple(self._chains)

    def read(self, frame: Mapping[str, float], *, chain: str | None = None) -> dict[str, HeadReading]:
        """Return every head one step on from rest, or from a chain's state as if this frame came next."""
        before = self._rest if chain is None else self._chains.get(chain, self._rest)
        return self._step(before, frame)[0]

    def observe(self, chain: str, frame: Mapping[str, float]) -> dict[str, HeadReading]:
        """Return every head after a chain's next frame, which its state takes up."""
        if chain not in self._chains and len(self._chains) >= self._limit:
            raise SpecError(
                f"{self._limit} chains are open and `{chain}` would be one more"
                "\nhint: end those that are finished (ChainEnded), or raise `chains`"
            )
        readings, self._chains[chain] = self._step(self._chains.get(chain, self._rest), frame)
        return readings

    def end(self, chain: str) -> None:
        """Forget a chain."""
        self._chains.pop(chain, None)

    def retrain(self, records: Sequence[Example]) -> None:
        """Fit all heads that these chains have labels for to the states of this substrate; the others stay.

        Reservoirs do not change, so chains go on. When anything fails the old heads are in place as they were.
        """
        for record in records:
            if not isinstance(record, Example):
                raise SpecError(f"records to train on are chains with labels (Example). Got {type(record).__name__}")
        fits: list[Mapping[str, HeadFit]] = []
        members = []
        for old, run in zip(self._members, self._runs, strict=True):
            seen = [_seen(run, record.inputs) for record in records]
            trained = fit_heads(records, seen, weights=old, layout=self.layout)
            members.append(_with_others(trained.weights, old, trained.fits))
            fits.append(trained.fits)
        noise = {name: float(np.mean([fit[name].noise for fit in fits])) for name in fits[0]}
        before = self._runs
        if self._device is None:
            self._runs = self._started(tuple(members))
        else:  # the slots of a device hold one of the two
            _close(before)
            try:
                self._runs = self._started(tuple(members))
            except Exception:
                self._runs = self._started(self._members)
                raise
        self._members, self.spreads = tuple(members), self.spreads | noise

    def export(self, path: PathLike) -> None:
        """Write weights and spreads as safetensors, whole or not at all."""
        save_members(self._members, self.spreads, path)

    def close(self) -> None:
        """Take the programs off the device."""
        _close(self._runs)

    def _started(self, members: tuple[EsnWeights, ...]) -> tuple[ConductorRun, ...]:
        return tuple(
            ConductorProgram(weights=w).run_on(self._device, precision=self._precision, calibration=self._calibration)
            for w in members
        )

    def _step(self, before: States, frame: Mapping[str, float]) -> tuple[dict[str, HeadReading], States]:
        x = scaled(frame)
        answers: list[HeadValues] = []
        after = []
        for run, state in zip(self._runs, before, strict=True):
            run.state = state
            answers.append(run.run_conductor(x))
            after.append(run.state)
        return {name: self._reading(name, [a[name] for a in answers]) for name in self.heads}, tuple(after)

    def _reading(self, head: str, values: Sequence[NDArray[np.float64]]) -> HeadReading:
        noise = self.spreads.get(head)
        if len(values) == 1:
            return HeadReading(values[0], noise)
        stack = np.stack(values)
        return HeadReading(stack.mean(axis=0), float(np.sqrt(stack[:, 0].var() + (noise or 0.0) ** 2)))


def read_corpus(path: PathLike) -> list[Example]:
    """Return the training chains of a corpus file, with labels: `Worker(..., read_log=read_corpus)`."""
    return examples(load_corpus(path), "train")


def _checked(members: tuple[EsnWeights, ...]) -> HeadLayout:
    """Return the layout that all members share."""
    if not members:
        raise SpecError("a conductor wants the weights of at least one network. Got none")
    for weights in members:
        expect_features(weights, FEATURES)
    first, *others = (_readout(weights)[2] for weights in members)
    for layout in others:
        if layout != first:
            raise SpecError(
                f"the members of an ensemble must have the same heads. Got `{first.name}` ({', '.join(first.names)}) "
                f"and `{layout.name}` ({', '.join(layout.names)}), or not the same ones trained"
            )
    return first


def _checked_spreads(layout: HeadLayout, spreads: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for name, value in spreads.items():
        _ = layout[name]  # refuses a name that no head has
        if value < 0:
            raise SpecError(f"the spread of head `{name}` must be at least 0. Got {value}")
        if not np.isnan(value):  # a fit that is not known, as of weights from a plain file
            found[name] = float(value)
    return found


def _seen(run: ConductorRun, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [s; u] along a chain, as the readout sees it."""
    return np.concatenate([np.asarray(run.states(inputs), np.float64), inputs], axis=1)


def _with_others(new: EsnWeights, old: EsnWeights, fits: Mapping[str, HeadFit]) -> EsnWeights:
    """Return the new readout, with the old rows of heads that were not fitted: no labels are no reason to forget."""
    (w_out, bias, layout), (old_w, old_bias, old_layout) = _readout(new), _readout(old)
    w_out, bias, heads = w_out.copy(), bias.copy(), []
    for head in layout.heads:
        if head.name not in fits:
            rows = layout.span(head.name)
            w_out[rows, : old_w.shape[1]], bias[rows] = old_w[rows], old_bias[rows]
        heads.append(head if head.name in fits else old_layout[head.name])
    marked = msgspec.structs.replace(layout, heads=tuple(heads))
    return new.with_readout(w_out, bias, passthrough=True, heads=marked)


def _readout(weights: EsnWeights) -> tuple[NDArray[Any], NDArray[Any], HeadLayout]:
    if weights.w_out is None or weights.out_bias is None or weights.heads is None:
        raise SpecError("a conductor wants weights with a readout and a head layout")
    return weights.w_out, weights.out_bias, weights.heads


def _close(runs: Sequence[ConductorRun]) -> None:
    for run in runs:
        run.close()
