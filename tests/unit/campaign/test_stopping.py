"""When a target ends a campaign: by all looks and their evidence, never by the luckiest one."""

import pytest

from metalforge.campaign.findings import PrecisionLook, fitted_error, target_reached


def looks(*errors, established=True, a=0.04):
    """Looks whose error is a factor times a n^(-1/2), with 100, 200, ... effective samples."""
    return [PrecisionLook(f * a * (100 * (i + 1)) ** -0.5, 100.0 * (i + 1), established) for i, f in enumerate(errors)]


def test_the_fit_gives_back_an_exact_law():
    assert fitted_error(looks(1, 1, 1, 1)) == pytest.approx(0.04 * 400**-0.5)


def test_one_lucky_look_does_not_end_a_campaign():
    ordinary = looks(1, 1, 1, 1)
    lucky = [*ordinary[:-1], ordinary[-1]._replace(error=0.5 * ordinary[-1].error)]
    target = 0.7 * ordinary[-1].error
    assert lucky[-1].error < target
    assert not target_reached(lucky, target)
    # The negative control: a law that is truly below the target ends it.
    assert target_reached(looks(0.6, 0.6, 0.6, 0.6), target)


def test_the_error_of_the_last_look_must_meet_the_target_as_well_as_the_fit():
    seen = looks(*8 * [0.6], 0.7)
    target = 0.65 / 0.7 * seen[-1].error
    assert fitted_error(seen) < target
    assert not target_reached(seen, target)
    assert target_reached(looks(*9 * [0.6]), target)


def test_evidence_must_hold_at_two_looks_in_a_row():
    done = looks(1, 1, 1)
    assert target_reached(done, 1.0)
    assert not target_reached(done[:1], 1.0)
    assert not target_reached([*done[:2], done[2]._replace(established=False)], 1.0)
    assert not target_reached([done[0], done[1]._replace(established=False), done[2]], 1.0)


def test_a_peak_that_was_lost_again_has_no_error():
    lost = [*looks(1, 1), PrecisionLook(None, 0.0, False)]
    assert fitted_error(lost) is None
    assert fitted_error([]) is None
    assert not target_reached(lost, 1.0)
