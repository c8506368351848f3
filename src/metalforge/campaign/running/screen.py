"""The screen: what the worker said of a chain's last rows is written down; what is worth a look is flagged."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Record, Screened
from metalforge.conductor.questions import HeadQuestion
from metalforge.conductor.worker import Worker
from metalforge.pipeline import Emit, Stage

from .equipment import Charge
from .orders import Block, Hear, pass_over
from .watch import ANOMALY


class Screen(Stage[Block, Block]):
    """Asks the worker about the last row of a block; flags chains whose chi is above the threshold."""

    def __init__(
        self,
        spec: CampaignSpec,
        worker: Worker,
        substrate: str,
        *,
        unused: set[str],
        hear: Hear = pass_over,
        charge: Callable[[str], Charge] = lambda _: Charge(),
    ) -> None:
        self._spec, self._worker, self._hear, self._charge = spec, worker, hear, charge
        self.substrate = substrate
        """Where the network runs, for the books."""
        trained = {head.name for head in worker.layout.heads if head.trained and head.available}
        self._written = trained - unused

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return the block with what the heads say of its last configuration."""
        self._hear(item)
        item = replace(item, passed_screen=True, screened=[self.seen(item)] if item.comes_anywhere else [])
        header = {"chi": item.chi, "coordinate": item.coordinate, "flagged": self._flagged(item), "done": item.done}
        return state, Emit(item, header=header, chain=item.chain)

    def seen(self, block: Block, *, unread: bool = False) -> Screened:
        """Return what is said of a block; of one that is `unread`, only whether it is flagged."""
        heads = {} if unread else self._read(block)
        charged = Charge() if unread else self._charge(block.chain)
        return Screened(
            chain=block.chain,
            step=block.step,
            route=EMULATED_NPU if self.substrate == EMULATED_NPU else "software",
            chi=block.chi or None,
            flagged=self._flagged(block),
            heads=heads,
            busy=charged.busy,
            energy=charged.energy,
        )

    def flag(self, block: Block) -> list[Record]:
        """Return what is said of a block that did not come here: that it is flagged, where it is."""
        return [self.seen(block, unread=True)] if block.rows and self._flagged(block) else []

    def _flagged(self, block: Block) -> bool:
        return block.chi >= self._spec.screening.chi

    def _read(self, block: Block) -> dict[str, float]:
        """Return what was said of the last row of a block; nothing where no word came in time."""
        wrong = False
        if block.segments:
            columns = {name: values[-1] for name, values in block.segments[-1].columns.items()}
            wrong = self._spec.theory.is_wrong(columns)
        asked = HeadQuestion(head=ANOMALY, chain=block.chain, of=block.step - 1, baseline=float(wrong))
        said = self._worker.ask(asked).get().said
        return {name: value for name, value in said.items() if name in self._written}


class ScreenBeside(Stage[Block, Screened]):
    """A screen beside the way of the blocks, which wait for nobody: it says what it says of those that it gets."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return what the heads say of a block."""
        return state, [self._screen.seen(item)] if item.comes_anywhere else []
