"""The design's QCD graph: shipped with control edges that never block; as the design writes it, refused."""

import re
import sys
from pathlib import Path

import pytest

from metalforge.pipeline import GraphError, from_toml
from metalforge.substrates import discover

EXAMPLES = Path(__file__).parents[3] / "examples"
TEXT = (EXAMPLES / "qcd_pipeline.toml").read_text()


@pytest.fixture(autouse=True)
def stages_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in [n for n in sys.modules if n == "qcd" or n.startswith("qcd.")]:
        del sys.modules[name]


def test_the_literal_graph_is_refused_and_the_cycle_is_drawn():
    literal, changed = re.subn(r'channel = \{ kind = "latest" \}', 'channel = { kind = "bounded", capacity = 1 }', TEXT)
    assert changed == 2
    with pytest.raises(GraphError) as caught:
        from_toml(literal)
    assert "npu_screen --Bounded(8)--> steer --Bounded(1)--> " in str(caught.value)
    assert "hint: make the edge that closes it Latest()" in str(caught.value)


def test_the_shipped_graph_runs_and_every_trajectory_is_steered_by():
    substrates = {s.info.name: s for s in discover().substrates}
    run = from_toml(
        TEXT.replace("updates = 40", "updates = 8").replace("updates = 80", "updates = 12"), substrates
    ).run()
    assert run.metrics("npu_screen").items_processed == 20
    assert run.metrics("steer").items_processed == 20
    edges = {e.edge: e for e in run.edges()}
    checked = edges["titan_hmc -> 3090_validate"]
    assert checked.sent + checked.filtered == 12
    assert checked.taken + checked.dropped == checked.sent
