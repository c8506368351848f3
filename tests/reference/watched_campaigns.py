"""Journals with what a watcher needs: a graph that is rewired, samples, joules, blocks that say when they began."""

import msgspec

from metalforge.campaign.store.reading import LineBorder, body_of, line_of
from metalforge.campaign.store.records import (
    EMULATED_NPU,
    BlockDone,
    JoulesSample,
    Sampled,
    Screened,
    Silicon,
    StageEdge,
    StageNode,
    StageSample,
    Topology,
)
from metalforge.core.quantities import Modelled
from reference.campaigns import BEGAN, records_of, spec_of

STEER, ON_0, ON_1, SCREEN, JOURNAL = "steer", "produce-cpu:0", "produce-cpu:1", "screen", "journal"
SAMPLES = 24
"""Samples of a watched campaign, one every two seconds; the graph is rewired after half of them."""


def graph(at, *, screen=True, ordering="C"):
    """The graph of a campaign on two cores, with an emulated board that screens or without it."""
    lanes = [StageNode(name=name, substrate=name[-5:], isolation="thread") for name in (ON_0, ON_1)]
    reading = [StageNode(name=SCREEN, substrate=EMULATED_NPU, isolation="thread")] if screen else []
    after = SCREEN if screen else JOURNAL
    edges = [StageEdge(source=STEER, target=lane.name, channel="at most 2") for lane in lanes]
    edges += [StageEdge(source=lane.name, target=after, channel="at most 8") for lane in lanes]
    edges += [StageEdge(source=SCREEN, target=JOURNAL, channel="at most 8")] if screen else []
    return Topology(
        at=at,
        ordering=ordering,
        stages=(StageNode(name=STEER, substrate=None), *lanes, *reading, StageNode(name=JOURNAL, substrate=None)),
        edges=(*edges, StageEdge(source=JOURNAL, target=STEER, channel="unbounded", feedback=True)),
    )


def sample(at, began, *, screen=True, paused=False):
    """Cores that work 90 % of their time and wait to hand over a tenth of it; all others mostly wait for items."""
    t = at - began

    def stage(name, items, busy, get, put, queue):
        return StageSample(
            stage=name, items=int(items * t), busy_s=busy * t, waited_get_s=get * t, waited_put_s=put * t, queue=queue
        )

    rest = (SCREEN, JOURNAL) if screen else (JOURNAL,)
    one = [stage(STEER, 1, 0.02, 0.95, 0.0, 0)]
    one += [stage(name, 3, 0.9, 0.0, 0.25, 2) for name in (ON_0, ON_1)]
    one += [stage(name, 6, 0.1, 0.85, 0.0, 1) for name in rest]
    energy = (
        JoulesSample(substrate="cpu:0", source="measured", joules=12.0 * (at - BEGAN)),
        JoulesSample(substrate=EMULATED_NPU, source="modelled", joules=0.9 * (at - BEGAN)),
    )
    return Sampled(at=at, window_s=t, stages=tuple(one), energy=energy, paused=paused)


def watched(spec=None, **options):
    """Return the records of a campaign that says all of it; its graph loses the screen half way."""
    written = records_of(spec or spec_of(), **options)
    board = Silicon(name=EMULATED_NPU, device="emulator", model="AKD1000", role="screens")
    written[0] = msgspec.structs.replace(written[0], silicon=(*written[0].silicon, board))
    made = [msgspec.structs.replace(r, began=r.at - 0.8) if isinstance(r, BlockDone) else r for r in written]
    half = BEGAN + SAMPLES
    told = [graph(BEGAN + 0.5), graph(half, screen=False, ordering="A")]
    for n in range(1, SAMPLES):
        at = BEGAN + 2.0 * n
        before = at < half
        told.append(sample(at, told[0].at if before else half, screen=before))
    told += [
        Screened(chain=r.chain, step=r.step, route=EMULATED_NPU, chi=1.0, flagged=False, heads={}, at=r.at,
                 busy=Modelled(value=0.2, unit="s", profile="a board"))
        for r in made if isinstance(r, BlockDone)
    ]  # fmt: skip
    return [made[0], *sorted([*made[1:], *told], key=lambda r: r.at)]


def lines_of(records):
    """Return the lines of a journal."""
    lines, border = [], LineBorder()
    for record in records:
        lines.append(line_of(border.link, body_of(record)))
        border = border.beyond(lines[-1], 1)
    return lines
