import re

import pytest

from metalforge.campaign.report.figures import draw_all
from metalforge.campaign.report.result import Results
from metalforge.campaign.report.sections import evidence_section, transition_section
from metalforge.campaign.report.words import interval_text, item_text
from metalforge.campaign.state import fold
from metalforge.lattice.campaign.report import LatticeReport
from metalforge.statistics import with_error
from reference.campaigns import ending, records_of, spec_of
from reference.landau_chain import VOLUME

LONG, SHORT = 6000, 2000
"""Rows of five chains of the model with which a peak is established, and with which it has too few blocks."""


@pytest.fixture(scope="module")
def sure():
    return fold(ending(records_of(spec_of(), rows=LONG)))


@pytest.fixture(scope="module")
def unsure():
    return fold(ending(records_of(spec_of(), rows=SHORT)))


def headline(shown):
    """Return the first section of the page of a lattice."""
    return LatticeReport().sections(shown, {}, "")[0]


def title(text):
    return re.search(r"<h1>(.*?)</h1>", text).group(1)


def text_of(html):
    return re.sub(r"<[^>]*>", "", html).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def test_an_established_number_stands_in_the_title_with_what_it_rests_on(sure):
    shown = Results(sure)
    text, found = headline(shown), shown.systems[0].transition
    assert with_error(found.result, found.error) in title(text)
    assert "is not established" not in text
    assert f"rests on {found.n_effective:.0f} independent samples in {found.n_blocks:.0f} blocks" in text


def test_without_evidence_there_is_an_interval_with_its_warnings_and_no_number_in_the_title(unsure):
    shown = Results(unsure)
    text, first = headline(shown), shown.systems[0]
    assert "not established" in title(text)
    assert not re.search(r"\d", title(text))
    assert interval_text(first.transition.result, first.transition.error) in text
    assert with_error(first.transition.result, first.transition.error) not in text
    lacking = [item for item in first.evidence if not item.holds]
    assert {item.name for item in lacking} >= {"effective samples", "independent blocks"}
    for item in lacking:
        assert item_text(item) in text_of(text)


def test_without_a_peak_the_reason_is_there():
    state = fold(ending(records_of(spec_of(), betas=(5.62,), rows=100)))
    shown = Results(state)
    text = headline(shown)
    assert "not located" in title(text)
    assert shown.systems[0].reason in text_of(text)


def test_an_extrapolation_needs_its_volumes_established():
    state = fold(records_of(spec_of(volumes=(VOLUME, (12, 12, 12, 4), (10, 10, 10, 4))), rows=SHORT))
    shown = Results(state)
    fit, text = shown.extrapolation, headline(shown)
    assert "not established" in title(text)
    assert not re.search(r"\d", title(text))
    assert "beta_c of 12^3x4: not established" in text
    physics = transition_section(shown, {})
    for part in (text, physics):
        assert interval_text(fit.result, fit.error) in part
        assert with_error(fit.result, fit.error) not in part
    assert "infinite volume: not established" in evidence_section(shown, {})


def test_every_item_of_evidence_is_in_the_table(unsure):
    result = Results(unsure)
    rows = re.findall(r"<tr><td.*?</tr>", evidence_section(result, {}))
    assert len(rows) == len(result.systems[0].evidence)
    for row, item in zip(rows, result.systems[0].evidence, strict=True):
        assert item.name in text_of(row)
        assert (">yes<" in row) == item.holds
        assert (">no<" in row) == (not item.holds)
        if item.needed is not None:
            assert f"{'at most' if item.at_most else 'at least'} {item.needed:.3g}" in row


def test_the_published_coupling_is_drawn_for_quenched_campaigns_only(unsure):
    drawn = draw_all(Results(unsure))[0]
    assert "infinite volume" in drawn.caption
    assert "QCDPAX" in drawn.caption
    labels = [text.get_text() for text in drawn.figure.axes[1].get_legend().get_texts()]
    assert "5.69254(24)" in "".join(labels)
    # And the peak, which is not established, has no number there.
    assert "\u03b2c, not established" in labels
    sea = fold(records_of(spec_of(algorithm="hmc", flavors=4, trajectories=9999), betas=(5.68, 5.7), rows=60))
    assert "infinite volume" not in draw_all(Results(sea))[0].caption
