"""What people type first shows itself: short in a terminal, a page's worth in a notebook, never a screen of digits."""

import numpy as np
import pytest

from metalforge import campaign
from metalforge.hybrid import OperationRouter
from metalforge.lattice.campaign import Lattice
from metalforge.pipeline import PipelineBuilder
from metalforge.reservoir import make_esn
from metalforge.substrates.npu.compile import compile_linear

SCREEN = 80 * 24


@pytest.fixture(scope="module")
def found():
    spec = campaign.CampaignSpec(
        name="shown <b>",
        theory=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
        budget=campaign.Budget(trajectories=500),
        warmup=campaign.WarmUpPolicy(shortest=10, longest=40),
        steering=campaign.Steering(visit=100, initial=4),
        running=campaign.Running(deterministic=True, producers=2),
    )
    return campaign.run(spec)


def shown():
    rng = np.random.default_rng(1)
    yield make_esn(300, 2, seed=1)
    yield compile_linear("heads", rng.normal(size=(12, 100)) * 0.1).program
    yield OperationRouter().plan(make_esn(40, 1, seed=1))
    yield PipelineBuilder("few").stage("a", None, lambda: [1]).stage("b", None, print).edge("a", "b").build()


@pytest.mark.parametrize("thing", list(shown()), ids=lambda thing: type(thing).__name__)
def test_a_repr_fits_a_screen_and_a_notebook_has_html(thing):
    assert 0 < len(repr(thing)) < SCREEN
    assert type(thing).__name__ in repr(thing)
    html = thing._repr_html_()
    assert html.startswith("<")
    assert len(html) < 20_000


def test_a_campaign_shows_its_verdict_in_a_line_and_with_figure_and_evidence_in_a_notebook(found):
    assert len(repr(found)) < 500
    assert "4^3x2" in repr(found)
    html = found._repr_html_()
    assert "data:image/svg+xml" in html
    assert "shown &lt;b&gt;" in html
    assert all(item.name in html for item in found.evidence)


def test_the_state_of_a_campaign_and_its_chains_are_short_whatever_they_hold(found):
    assert len(repr(found.state)) < SCREEN * 2
    assert all(len(repr(log)) < SCREEN * 2 for log in found.state.chains.values())
    assert len(found.state._repr_html_()) < 20_000
