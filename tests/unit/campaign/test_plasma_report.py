"""What a campaign of a plasma says to people: lines, page, figures and files, of a map and of a freezing."""

import csv
import io
import json
import math

import msgspec
import numpy as np
import pytest

from metalforge.campaign.analysis.evidence import PlannedPoints
from metalforge.campaign.report.page import write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import WarmUpPolicy
from metalforge.core.errors import SpecError
from metalforge.plasma.campaign.freezing import find_freezing
from metalforge.plasma.campaign.transport import find_transport
from reference.drawn_segments import drawn
from reference.melting_walks import MELTS, rows_of, walk
from reference.small_campaigns import FREEZES, PARTICLES

LOW, HIGH = math.log(80), math.log(1000)


@pytest.fixture(scope="module", params=["map", "freezing"])
def campaign(request, tmp_path_factory):
    """A campaign that was run, its result, and its directory."""
    spec = PARTICLES if request.param == "map" else FREEZES
    directory = tmp_path_factory.mktemp(request.param) / "campaign"
    with Campaign.open(spec, directory) as running:
        state = running.run()
    return state, Results(state), directory


def freezes(state):
    return state.spec.theory.look_for == "freezing"


def test_a_trajectory_that_has_not_begun_is_in_the_report(campaign, tmp_path, undrawn):
    """A GPU takes more than a hundred at once: a campaign may end before the last of them has a row."""
    state = campaign[0].fork()
    visit = msgspec.structs.replace(state.visits[-1], visit=len(state.visits), chain="c9999", stream=9999, fresh=True)
    state.apply(visit)
    page = write_report(Results(state), tmp_path).read_text()
    assert "c9999" in page
    assert len(list(csv.reader(io.StringIO((tmp_path / "rows.csv").read_text())))) > 1


def test_a_small_campaign_says_that_nothing_is_established(campaign):
    state, result, directory = campaign
    lines = list(state.spec.theory.report.lines(result))
    assert "not established" in lines[0]
    assert any(line.strip().startswith("lacks") for line in lines)
    assert "not " in state.spec.theory.report.headline(result.systems[0])
    page = write_report(Results(state), directory)
    text = page.read_text()
    assert ("Freezing" if freezes(state) else "Transport along the coupling") in text
    assert all(chain.id in text for chain in result.chains)


def test_a_summary_names_what_was_looked_for(campaign):
    state, result, _ = campaign
    said = json.loads(msgspec.json.encode(result.summary))["result"]
    freezing = state.spec.theory.look_for == "freezing"
    assert said["name"] == ("Gamma_m" if freezing else "D*, eta*")
    assert set(said) == {"name", "label", "unit", "value", "error", "established", "reason"}
    assert said["established"] is False
    assert said["reason"]


def test_freezing_is_quoted_as_gamma_and_not_as_its_logarithm():
    value, error = FREEZES.theory.quoted(math.log(217.0), 0.01)
    assert value == pytest.approx(217.0)
    assert error == pytest.approx(2.17)


def test_trajectories_of_a_freezing_are_each_new(campaign):
    state, _, _ = campaign
    if not freezes(state):
        assert any(len(chain.visits) > 1 for chain in state.chains.values())
        return
    assert all(len(chain.visits) == 1 for chain in state.chains.values())
    assert {chain.start for chain in state.chains.values()} == {"two-phase"}
    assert {chain.warmup for chain in state.chains.values()} == {4}
    assert [one.coordinate for one in list(state.chains.values())[:2]] == [
        state.spec.theory.low,
        state.spec.theory.high,
    ]


def test_a_found_number_is_drawn_compared_and_quoted(campaign):
    state, _, _ = campaign
    rng, plan = np.random.default_rng(1), PlannedPoints(2, 2)
    if freezes(state):
        places = np.linspace(MELTS - 0.06, MELTS + 0.06, 40)
        found = find_freezing([rows_of(f"c{i}", at, walk(rng, at)) for i, at in enumerate(places)], plan)
        name = "freezing"
        words = ["grew", "melted", "rate"]
    else:
        rows = [drawn(f"c{i}", at, 24, rng) for i, at in enumerate(np.linspace(LOW, HIGH, 6))]
        found = find_transport(rows, plan, LOW, HIGH, None)
        name = "transport"
        words = ["eta*", "trajectories"]
    assert found.established
    shown = Results(state)
    shown.found = dict.fromkeys(state.spec.theory.systems, found)
    result, report = shown, state.spec.theory.report
    assert result.established
    assert "established" in next(report.lines(result))
    assert "not established" not in next(report.lines(result))
    assert 'class="value"' in report.headline(result.systems[0])
    assert "published" in report.comparison(result)
    section = report.sections(shown, {}, "")[1]
    assert all(word in section for word in words)
    assert {one.name for one in report.draw(shown)} >= {name, "histories"}


def test_what_was_found_comes_as_a_file(campaign):
    state, result, _ = campaign
    written = list(csv.DictReader(io.StringIO(state.spec.theory.report.curves_csv(Results(state)))))
    found = result.systems[0].details
    points = [row for row in written if row["what"] == "point"]
    if freezes(state):
        assert {row["chain"] for row in points} == {one.chain for one in found.trajectories if one.rate is not None}
        assert all(float(row["ln_gamma"]) > 0 for row in points)
        return
    curve = [row for row in written if row["what"] == "curve"]
    assert (len(points), len(curve)) == (len(found.points), len(found.curve.at))
    assert float(curve[0]["D"]) == pytest.approx(math.exp(found.curve.log_diffusion[0]))
    assert float(points[0]["eta_error"]) == found.points[0].viscosity_error


def test_a_warm_up_without_its_stages_is_refused_at_once():
    with pytest.raises(SpecError, match="4 stages"):
        msgspec.structs.replace(FREEZES, warmup=WarmUpPolicy(longest=6, shortest=6))
