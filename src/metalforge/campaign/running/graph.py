"""An arrangement as a pipeline: plan -> steer -> producers -> screen -> journal -> steer, with checks beside it."""

from collections.abc import Callable, Mapping

from metalforge.campaign.orderings import Arrangement
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Silicon
from metalforge.core.substrate import SubstrateInfo
from metalforge.pipeline import Bounded, Filtered, Pipeline, PipelineBuilder, Unbounded

from .book import Book
from .orders import Hear, stage_of
from .planner import Planner
from .producer import Producer
from .recording import Check, Recorder, Steer
from .rewiring import BEFORE, TO_JOURNAL, TO_SCREEN
from .screen import Screen


def build_graph(
    spec: CampaignSpec,
    arrangement: Arrangement,
    *,
    book: Book,
    planner: Planner,
    screen: Screen | None,
    hear: Hear,
    produce: Callable[[str, int | None], Producer],
) -> Pipeline:
    """Return the checked graph of an arrangement; `produce` makes the producer of a substrate."""
    builder = PipelineBuilder(f"{spec.name} {arrangement.ordering}")
    builder.stage("plan", None, lambda: [None])
    builder.stage("steer", "host", Steer(planner)).edge("plan", "steer")
    builder.stage("journal", "host", Recorder(book, hear, screen)).edge("journal", "steer", Bounded(8))
    after = "journal"
    if screen is not None:
        builder.stage(BEFORE, screen.substrate, screen).edge(BEFORE, "journal", TO_JOURNAL)
        after = BEFORE
    if arrangement.checker is not None:
        builder.stage("check", arrangement.checker, Check(spec.theory, arrangement.checker)).edge(
            "check", "journal", Bounded(8)
        )
    for lane in arrangement.lanes:
        name = stage_of(lane.substrate)
        producer = produce(lane.substrate, _core(lane.substrate))
        # One that comes back after a crash knows nothing and is told again: there is no state to keep for it.
        builder.stage(name, lane.substrate, producer, isolation=spec.running.isolation, checkpoint_every=1)
        # Orders are few: as many as the planner lets wait. None may be overwritten by a newer one.
        builder.edge("steer", name, Unbounded(), feedback=True)
        builder.edge(name, after, TO_SCREEN)
        if arrangement.checks == "flagged":
            builder.edge(name, "check", Filtered(f"chi >= {spec.screening.chi!r}", Bounded(2)))
        elif arrangement.checks == "all":
            builder.edge(name, "check", Bounded(2))
    return builder.build()


def _core(substrate: str) -> int | None:
    """Return the core of a logical substrate such as `cpu:1`."""
    kind, _, number = substrate.partition(":")
    return int(number) if kind == "cpu" and number.isdigit() else None


def silicon_of(
    arrangement: Arrangement, of: Mapping[str, SubstrateInfo], *, emulated: str | None = None
) -> tuple[Silicon, ...]:
    """Return what each logical substrate does, and which one it is; `emulated` is the board that screens, if one does.

    A name that an ordering made up shares the first.
    """
    first = next(iter(of.values()))

    def silicon(name: str, role: str) -> Silicon:
        info = of.get(name, first)
        return Silicon(name=name, device=info.name, model=info.model, role=role)

    rows = [
        silicon(lane.substrate, "follows the scout" if lane.follows is not None else "produces")
        for lane in arrangement.lanes
    ]
    if arrangement.checker is not None:
        rows.append(silicon(arrangement.checker, f"checks {arrangement.checks}"))
    if arrangement.screens and emulated is not None:
        rows.append(Silicon(name=EMULATED_NPU, device="host", model=f"{emulated}, emulated", role="screens"))
    return tuple(rows)
