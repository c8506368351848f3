"""The kinds of channels as edges of a graph and files have them; what each does to items: `test_channel_handles`."""

from queue import SimpleQueue

import msgspec
import pytest

from metalforge.core import SpecError, UnknownNameError
from metalforge.pipeline import (
    Bounded,
    Broadcast,
    Collect,
    Filtered,
    Latest,
    Pipeline,
    PipelineBuilder,
    Unbounded,
    from_toml,
)
from metalforge.pipeline.items import Item, ItemId, payload_bytes
from metalforge.pipeline.kinds import KINDS, ChannelKind, read_channel
from metalforge.pipeline.lanes import Lane


def kind_name(kind):
    return type(kind).__name__


def opened(kind):
    return kind.open("a", "b", SimpleQueue())


def offer(lane, payload):
    item = Item(ItemId("a", "a", 0), payload, size=payload_bytes(payload))
    return lane.wants(item) and lane.offer(item)


def take(lane):
    return lane.take(lane.inbox.get(timeout=1)[1]).payload


KINDS_THAT_KEEP = [
    Bounded(3), Bounded(3, max_bytes=1000), Unbounded(), Broadcast(3), Filtered(lambda x: True, Bounded(3)),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS_THAT_KEEP, ids=kind_name)
def test_values_come_out_in_order_and_the_end_comes_last(kind):
    seen = Collect()
    builder = PipelineBuilder().stage("a", None, lambda: range(200)).stage("b", None, seen).edge("a", "b", kind)
    run = builder.build().run()
    assert seen.payloads == list(range(200))
    (edge,) = run.edges()
    assert (edge.sent, edge.taken, edge.queued) == (200, 200, 0)


def test_a_lane_that_took_carried_items_past_its_limit_has_its_own_limit_again_afterwards():
    lane = opened(Bounded(2))
    items = [Item(ItemId("a", "a", i), i) for i in range(5)]
    for item in items:
        lane.force(item)
    assert not lane.offer(items[0])
    assert [take(lane) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert [lane.offer(item) for item in items] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bounded(0),
        lambda: Bounded(1, max_bytes=0),
        lambda: Unbounded(warn_at=0),
        lambda: Bounded(2, max_bytes=5, drop="oldest"),
        lambda: read_channel({"kind": "bounded", "capacity": 2, "dorp": "oldest"}),
        lambda: read_channel({"kind": "filtered", "where": 3}),
    ],
)
def test_impossible_kinds_are_refused(make):
    with pytest.raises(SpecError):
        make()


@pytest.mark.parametrize(
    "kind", [*KINDS_THAT_KEEP[:4], Latest(), Filtered("chi > 1", Broadcast(3, slow="drop"))], ids=kind_name
)
def test_a_kind_is_read_back_from_its_record(kind):
    record = {k: v for k, v in msgspec.to_builtins(kind).items() if v is not None}
    assert read_channel(record) == kind


def test_a_channel_is_added_in_one_place(monkeypatch):
    class Every(ChannelKind, frozen=True, tag="every"):
        """Lets every `n`-th item through, and never blocks."""

        n: int

        def open(self, source, target, inbox, *, droppable=False):
            lane = Lane(source, target, inbox)
            lane.predicate = lambda item: item.payload % self.n == 0
            return lane

    text = """
        [[stages]]
        name = "a"
        use = "reference.pipeline_stages:Numbers"
        parameters = { count = 7 }
        [[stages]]
        name = "b"
        use = "metalforge.pipeline:Collect"
        [[edges]]
        from = "a"
        to = "b"
        channel = { kind = "every", n = 3 }
    """
    with pytest.raises(UnknownNameError, match="every"):
        from_toml(text)
    monkeypatch.setitem(KINDS, "every", Every)
    pipeline: Pipeline = from_toml(text)
    assert "[Every(3)]" in pipeline.show()
    pipeline.run()
    assert pipeline.graph.stages["b"].stage.payloads == [0, 3, 6]
