"""The screen: every so many updates of a chain pass through the reservoir; what is worth a look is flagged."""

import time
from collections.abc import Callable
from typing import Any

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Screened
from metalforge.conductor.features import FrameBuilder
from metalforge.pipeline import Emit, Stage
from metalforge.substrates.npu.device import NpuDevice

from .heads import Heads, context_of
from .orders import Block
from .watch import trajectory_of

__all__ = ["Screen"]


class Screen(Stage[Block, Block]):
    """Reads all heads along every chain; a chain whose chi is above the threshold is flagged.

    `emulation_s` is the processor time that the device's emulation took here: no board would have spent it.
    """

    def __init__(
        self, spec: CampaignSpec, heads: Heads | None, device: NpuDevice | None, now: Callable[[], float]
    ) -> None:
        self._spec, self._heads, self._device, self._now = spec, heads, device, now
        self._conductor = None if heads is None else heads.conductor(device)
        self._builders: dict[str, FrameBuilder] = {}
        self._before: dict[str, tuple[float, float]] = {}
        self.emulation_s = 0.0
        self.passes = 0

    @property
    def substrate(self) -> str:
        """Where the network runs, for the books."""
        return "host" if self._device is None else EMULATED_NPU

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return the block with what the heads say of its last configuration."""
        readings = self._read(item)
        flagged = item.chi >= self._spec.screening.chi
        if item.rows:
            item.screened.append(
                Screened(
                    at=self._now(),
                    chain=item.chain,
                    step=item.step,
                    route="software" if self._device is None else EMULATED_NPU,
                    chi=item.chi or None,
                    flagged=flagged,
                    heads=readings,
                )
            )
        header = {"chi": item.chi, "beta": item.beta, "flagged": flagged, "done": item.done}
        return state, Emit(item, header=header, chain=item.chain)

    def _read(self, block: Block) -> dict[str, float]:
        if self._conductor is None or self._heads is None:
            return {}
        readings: dict[str, float] = {}
        lattice = self._spec.lattice
        n_steps = lattice.n_steps if lattice.algorithm == "hmc" else None
        for segment in block.segments:
            names = tuple(segment.columns)
            for i in range(len(segment.columns["plaquette"])):
                if (segment.first + i) % self._spec.screening.every:
                    continue
                values = {name: segment.columns[name][i] for name in names}
                readings = self._pass(block, values, segment.phase, n_steps)
        return readings

    def _pass(self, block: Block, values: dict[str, float], phase: Any, n_steps: int | None) -> dict[str, float]:
        assert self._conductor is not None
        assert self._heads is not None
        if block.chain not in self._builders:
            self._builders[block.chain] = FrameBuilder(context_of(self._spec, block.beta, block.dims))
            start = 0.0 if block.start == "hot" else 1.0
            self._before[block.chain] = start, start
        seen = trajectory_of(phase, values, self._before[block.chain], tau=self._spec.lattice.tau, n_steps=n_steps)
        self._before[block.chain] = values["plaquette"], values["plaquette_spatial"]
        began = time.thread_time()
        found = self._conductor.observe(block.chain, self._builders[block.chain].push(seen))
        if self._device is not None:
            self.emulation_s += time.thread_time() - began
        self.passes += 1
        known = {spec.name for spec in self._conductor.layout.heads if spec.trained and spec.available}
        return {
            name: float(reading.value[-1])
            for name, reading in found.items()
            if name in known and name not in self._heads.unused
        }
