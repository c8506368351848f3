"""Rows far from where a chain has been are flagged; a crossing between the phases is not."""

import numpy as np
import pytest

from metalforge.campaign.running.band import BIN, FEWEST, Band

SD = 0.004


def columns(rng, rows, plaquette=0.5, loop=0.1):
    made = {"plaquette": plaquette, "polyakov_re": loop, "polyakov_im": 0.0}
    return {name: rng.normal(mean, SD, rows).tolist() for name, mean in made.items()}


@pytest.fixture
def rng():
    return np.random.default_rng(4)


@pytest.fixture
def band(rng):
    learned = Band(n_t=4)
    learned.take(columns(rng, 1000), 1000)
    return learned


def test_rows_as_before_are_in_the_band(band, rng):
    assert band.look(columns(rng, 500), 500) is None


def test_one_row_that_is_far_is_found_where_it_is(band, rng):
    new = columns(rng, 50)
    new["plaquette"][30] += 10 * SD
    found = band.look(new, 20)  # the last rows are measured ones
    assert found.row == 0
    assert found.z == pytest.approx(10, abs=3)
    assert band.look(new, 19) is None


def test_rows_that_are_all_a_little_off_are_found_by_their_bins(band, rng):
    found = band.look(columns(rng, 100, plaquette=0.5 + 3 * SD), 100)
    assert found is not None
    assert found.row < 2 * BIN


def test_a_crossing_between_the_phases_passes_and_a_plaquette_that_moves_alone_does_not(band, rng):
    crossed = columns(rng, 100, plaquette=0.5 + 3 * SD, loop=0.4)
    assert band.look(crossed, 100) is None
    assert band.look(columns(rng, 100, plaquette=0.5 + 3 * SD), 100) is not None
    assert band.look(columns(rng, 100, plaquette=0.6, loop=0.4), 100) is not None


def test_a_band_does_not_depend_on_how_its_rows_were_cut(rng):
    rows = columns(rng, 600)
    whole, parts = Band(n_t=4), Band(n_t=4)
    whole.take(rows, 600)
    for begin in range(0, 600, 37):
        part = {name: values[begin : begin + 37] for name, values in rows.items()}
        parts.take(part, len(part["plaquette"]))
    far = columns(rng, 40, plaquette=0.5 + 8 * SD)
    assert parts.look(far, 40) == pytest.approx(whole.look(far, 40))


def test_nothing_is_said_before_there_are_rows_to_learn_from(rng):
    young = Band(n_t=4)
    young.take(columns(rng, FEWEST * BIN - 1), FEWEST * BIN - 1)
    assert young.look(columns(rng, 50, plaquette=0.9), 50) is None
