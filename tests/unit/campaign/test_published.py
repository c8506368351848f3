"""Where a scan looks when nobody says where: around what was published for N_t."""

import msgspec
import pytest

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import converted, load_spec
from metalforge.core.errors import SpecError
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.published import PUBLISHED, derived_range


def test_every_coupling_has_an_error_a_source_and_rises_with_n_t():
    assert {2, 3, 4, 6, 8} <= set(PUBLISHED)
    values = [entry.beta_c for entry in PUBLISHED.values()]
    assert values == sorted(values)
    assert all(n_t == entry.n_t and 0 < entry.error < 0.01 for n_t, entry in PUBLISHED.items())
    assert all("(" in entry.source and entry.short for entry in PUBLISHED.values())
    assert PUBLISHED.get(4).beta_c == 5.69254
    assert [PUBLISHED.get(n).error for n in (2, 4, 8)] == pytest.approx([0.0007, 0.00024, 0.0010])
    assert PUBLISHED.get(7) is None


@pytest.mark.parametrize("n_t", PUBLISHED)
def test_a_derived_range_holds_the_coupling_well_inside(n_t):
    low, high = derived_range(n_t)
    assert low + 0.05 < PUBLISHED[n_t].beta_c < high - 0.05
    assert high - low == pytest.approx(0.2)


def test_a_spec_without_a_range_gets_that_of_its_n_t():
    assert (Lattice().beta_min, Lattice().beta_max) == (5.6, 5.8)
    six = Lattice(volumes=((12, 12, 12, 6),))
    assert six.low < 5.894 < six.high
    assert six.low > 5.7


def test_a_file_without_a_range_is_resolved_and_prints_its_numbers(tmp_path):
    path = tmp_path / "short.toml"
    path.write_text("[lattice]\nvolumes = [[12, 12, 12, 6]]\n")
    spec = load_spec(path)
    (tmp_path / "whole.toml").write_text(spec_text(spec))
    assert "beta_min = 5.8\n" in spec_text(spec)
    assert load_spec(tmp_path / "whole.toml") == spec
    assert converted(msgspec.json.decode(msgspec.json.encode(spec))).sha256 == spec.sha256


@pytest.mark.parametrize(
    ("lattice", "word"),
    [
        ({"volumes": ((16, 16, 16, 14),)}, "14"),
        ({"volumes": ((8, 8, 8, 4), (8, 8, 8, 2))}, "one N_t"),
        ({"algorithm": "hmc", "flavors": 4, "mass": 0.1}, "sea quarks"),
        ({"beta_min": 5.0}, "beta_max"),
        ({"beta_max": 5.0}, "beta_min"),
    ],
)
def test_where_there_is_nothing_to_go_by_a_range_is_asked_for(lattice, word):
    with pytest.raises(SpecError, match=word):
        Lattice(**lattice)


def test_a_given_range_is_taken_as_it_is():
    lattice = Lattice(volumes=((8, 8, 8, 4), (8, 8, 8, 2)), beta_min=5.1, beta_max=5.7)
    assert (lattice.beta_min, lattice.beta_max) == (5.1, 5.7)
