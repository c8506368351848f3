"""The screen: what the worker said of a chain's last rows is written down; what is worth a look is flagged."""

from dataclasses import replace
from typing import Any

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Screened
from metalforge.conductor.heuristics import anomaly
from metalforge.conductor.questions import HeadQuestion
from metalforge.conductor.worker import Worker
from metalforge.pipeline import Emit, Stage

from .orders import Block, Hear, pass_over

ANOMALY = "anomaly"


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
    ) -> None:
        self._spec, self._worker, self._hear = spec, worker, hear
        self.substrate = substrate
        """Where the network runs, for the books."""
        trained = {head.name for head in worker.layout.heads if head.trained and head.available}
        self._written = trained - unused

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Return the block with what the heads say of its last configuration."""
        self._hear(item)
        flagged = item.chi >= self._spec.screening.chi
        if item.rows:
            seen = Screened(
                chain=item.chain,
                step=item.step,
                route=EMULATED_NPU if self.substrate == EMULATED_NPU else "software",
                chi=item.chi or None,
                flagged=flagged,
                heads=self._read(item),
            )
            item = replace(item, screened=[seen])
        header = {"chi": item.chi, "beta": item.beta, "flagged": flagged, "done": item.done}
        return state, Emit(item, header=header, chain=item.chain)

    def _read(self, block: Block) -> dict[str, float]:
        """Return what was said of the last row of a block; nothing where no word came in time."""
        last = block.segments[-1]
        columns = {name: values[-1] for name, values in last.columns.items()}
        wrong = anomaly(columns["plaquette"], columns.get("delta_h"), columns.get("cg_iterations"))
        row = last.first + len(last.columns["plaquette"]) - 1
        asked = HeadQuestion(head=ANOMALY, chain=block.chain, of=row, baseline=float(wrong))
        said = self._worker.ask(asked).get().said
        return {name: value for name, value in said.items() if name in self._written}
