"""Two Markov chains, a screen and a steerer as one streaming graph; rewired while it runs, with nothing lost."""

import sys

from qcd.stages import Producer, Screen, Steer, check_precision

from metalforge.pipeline import Bounded, Collect, Edits, Filtered, Latest, PipelineBuilder
from metalforge.substrates import discover

quick = "--quick" in sys.argv
here = {s.info.name: s for s in discover().substrates}
cpu, npu = here["cpu:0"], here["akd1000-emulated"]
updates, results = (30 if quick else 300), Collect()

pipeline = (
    PipelineBuilder("qcd")
    .stage("large", cpu, Producer(chain=0, extent=6, updates=updates, beta=5.5))
    .stage("small", cpu, Producer(chain=1, extent=4, updates=updates, beta=5.7))
    .stage("screen", npu, Screen())
    .stage("steer", cpu, Steer())
    .stage("check", cpu, check_precision, droppable=True)
    .stage("results", None, results)
    .edge("large", "screen", Bounded(4, max_bytes=1 << 30))
    .edge("small", "screen", Bounded(4))
    .edge("screen", "steer", Bounded(8))
    .edge("screen", "results")
    .edge("steer", "large", Latest(), feedback=True)
    .edge("steer", "small", Latest(), feedback=True)
    .edge("large", "check", Filtered("chi > 0.2 and abs(beta - 5.69) < 0.2", Bounded(2)))
    .build()
)
print(pipeline.show())
with pipeline.start() as run:
    receipt = run.reconfigure(Edits().remove_stage("check").change_edge("screen", "steer", Bounded(16)))
    run.wait()
print(f"rewired while running: {receipt.dropped} items dropped, {len(receipt.paused)} stages paused")
print(
    f"{len(results.items)} of {2 * updates} updates in equilibrium; no id twice: {len({i.id for i in results.items})}"
)
