"""A plasma in report, page and terminal: the same numbers, its own words, and comparisons with what can be compared."""

import json

import numpy as np
import pytest

from metalforge.campaign import load
from metalforge.campaign.report.figures import draw_all
from metalforge.campaign.report.parts import apart, compared_campaign
from metalforge.campaign.report.result import Results
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.view import view_of
from metalforge.cli.live import plain_lines
from metalforge.dashboard.following import Followed
from metalforge.dashboard.payloads import campaign_line, encoded, transition_sent
from reference.dashboard_pages import QUOTED, campaign
from reference.small_campaigns import PARTICLES


@pytest.fixture(scope="module")
def particles(tmp_path_factory):
    directory = tmp_path_factory.mktemp("particles") / "run"
    with Campaign.open(PARTICLES, directory) as one:
        one.run()
    return directory


@pytest.fixture(scope="module")
def lattice(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("lattice"))


def test_transport_is_the_same_in_report_and_page(particles):
    followed = Followed(particles)
    followed.advance()
    sent = json.loads(encoded(transition_sent(followed)))["figure"]
    figure = next(d.figure for d in draw_all(Results(followed.state)) if d.name == "transport")
    (volume,) = sent["systems"]
    for axis, pick in zip(figure.axes, ("order", "chi"), strict=True):
        dots = next(line for line in axis.lines if line.get_marker() == "o")
        assert dots.get_xdata().tolist() == [p["coordinate"] for p in volume["points"]]
        assert dots.get_ydata().tolist() == [p[pick]["mean"] for p in volume["points"]]
        dotted = next(line for line in axis.lines if line.get_linestyle() == ":")
        assert dotted.get_ydata().tolist() == [value for value in sent["known"][pick] if value]
    assert sent["words"]["shows"] == ["D*", "\u03b7*"]
    assert np.isfinite([p["coordinate"] for p in volume["points"]]).all()


def test_a_plasma_is_compared_with_another_and_not_with_a_lattice(particles, lattice, tmp_path):
    own = load(particles)
    page = own.report(tmp_path / "alike", beside=[load(particles)])
    assert "<h2>Compared</h2>" in page.read_text()
    assert (page.parent / "figures" / "compared.png").exists()
    text = own.report(tmp_path / "apart", beside=[load(lattice)]).read_text()
    assert "no figure in common" in text
    assert "D* and \u03b7* against ln \u0393" in text
    assert f"\u03b2c = {QUOTED}" in text
    assert not (tmp_path / "apart" / "figures" / "compared.png").exists()
    alike = compared_campaign(own)
    assert apart([alike, alike]) == ""
    assert alike.line[1].startswith("D* to ")


def test_a_plasma_has_no_screen_and_says_what_it_finds(particles):
    followed = Followed(particles)
    followed.advance()
    view = view_of(followed.state, followed.state.last_at)
    assert "rewire" not in view.commands
    assert {"system", "coupling", "steerer"} <= set(view.commands)
    line = campaign_line(followed, 0)
    assert line["found"].startswith("D* to ")
    assert len(line["spark"]) > 1  # the error of the curve, as it fell
    assert {budget.unit for budget in view.budgets} == {"segments"}
    assert any("D* to " in text for text in plain_lines(view, None))
    figure = followed.state.spec.theory.report.figure(Results(followed.state))
    assert figure.published == ()
