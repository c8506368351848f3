"""What is said before a run: small lattices and slow ones."""

from itertools import product

import pytest

from metalforge.campaign.advice import size_cautions, speed_cautions
from metalforge.campaign.spec import PRESETS, CampaignSpec, Lattice
from metalforge.core.errors import SpecError
from metalforge.native import kernels
from metalforge.native.cpu_engine import slow_extents


def spec_of(*volumes, **lattice):
    return CampaignSpec(lattice=Lattice(volumes=volumes, beta_min=5.0, beta_max=6.0, **lattice))


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_slow_lattices_are_those_that_the_layout_does_not_put_in_lanes(precision):
    layout = getattr(kernels(), f"layout_{precision}")
    vectors = layout((4, 4, 4, 4)).lanes > 1
    for dims in product((4, 6, 8), (4, 6), (4, 10), (2, 4, 6)):
        assert bool(slow_extents(dims, precision)) == (vectors and layout(dims).lanes == 1)
        assert all(n % 4 for n in slow_extents(dims, precision))


def test_extents_that_are_no_lattice_are_refused():
    with pytest.raises(SpecError, match="even"):
        slow_extents((8, 8, 8, 3))


def test_an_aspect_ratio_below_two_is_said_and_two_is_fine():
    assert size_cautions(spec_of((8, 8, 8, 4), (16, 16, 16, 4))) == ()
    (said,) = size_cautions(spec_of((8, 8, 8, 4), (8, 8, 8, 6)))
    assert "8^3x6" in said
    assert "12" in said


def test_a_slow_lattice_is_said_with_better_ones():
    wide = kernels().layout_f64((4, 4, 4, 4)).lanes > 2
    said = speed_cautions(spec_of((10, 10, 10, 4), (12, 12, 12, 4)))
    assert len(said) == wide
    assert all("10^3x4" in text and "8^3x4 or 12^3x4" in text for text in said)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_run_fast(name):
    assert speed_cautions(PRESETS[name]) == ()
