"""The screen: the advisor's readings of a chain's last rows are recorded; blocks with a large chi are flagged."""

from dataclasses import replace
from typing import Any

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Record, Screened
from metalforge.core import Advice, Advisor, Reading
from metalforge.pipeline import Emit, Stage

from .orders import Block, Hear, pass_over


class Screen(Stage[Block, Block]):
    """Records the readings of the last row of a block; flags chains whose chi is above the threshold."""

    def __init__(self, spec: CampaignSpec, advisor: Advisor | None, *, hear: Hear = pass_over) -> None:
        self._spec, self._advisor, self._hear = spec, advisor, hear
        self.substrate = "host" if advisor is None or advisor.device is None else EMULATED_NPU
        """Where the network runs, for the books."""

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return the block with the readings of its last configuration."""
        self._hear(item)
        item = replace(item, passed_screen=True, screened=[self.seen(item)] if item.comes_anywhere else [])
        header = {"chi": item.chi, "coordinate": item.coordinate, "flagged": self._flagged(item), "done": item.done}
        return state, Emit(item, header=header, chain=item.chain)

    def seen(self, block: Block, *, unread: bool = False) -> Screened:
        """Return what is recorded of a block; of one that is `unread`, only whether it is flagged."""
        read = None if unread or self._advisor is None else self._advisor.advise(Reading(block.chain, block.step - 1))
        read = read or Advice()
        return Screened(
            chain=block.chain,
            step=block.step,
            route=EMULATED_NPU if self.substrate == EMULATED_NPU else "software",
            chi=block.chi or None,
            flagged=self._flagged(block),
            heads=read.readings,
            busy=read.busy,
            energy=read.energy,
        )

    def flag(self, block: Block) -> list[Record]:
        """Return the record of a block that did not come here: that it is flagged, where it is."""
        return [self.seen(block, unread=True)] if block.rows and self._flagged(block) else []

    def _flagged(self, block: Block) -> bool:
        return block.chi >= self._spec.screening.chi


class ScreenBeside(Stage[Block, Screened]):
    """A screen beside the way of the blocks, which do not wait for it: it reads those that it gets."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return what is recorded of a block."""
        return state, [self._screen.seen(item)] if item.comes_anywhere else []
