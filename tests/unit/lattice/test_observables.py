import cmath
import math
from functools import cache

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import GaugeField, creutz_ratio, measure, wilson_loops, z3_projection
from reference import gauge as twin

CENTRE = [cmath.exp(2j * math.pi * n / 3) for n in range(3)]


@cache
def sample(dims=(4, 6, 2, 4)):
    return twin.random_links(np.random.default_rng(12), dims, 0.3)


def field_of(links):
    return GaugeField.from_links(links, threads=1)


def centre_transformed(links, z, time=1):
    """Every link in time of one time slice times an element of the centre."""
    out = links.copy()
    out[time, ..., 3, :, :] *= z
    return out


class TestMeasure:
    def test_means_are_those_of_the_definition(self):
        links = sample()
        spatial, temporal = np.array(twin.plaquette_sums(links)) / (3 * 192)
        seen = measure(field_of(links))
        assert seen.plaquette_spatial == pytest.approx(spatial, rel=1e-13)
        assert seen.plaquette_temporal == pytest.approx(temporal, rel=1e-13)
        assert seen.plaquette == pytest.approx((spatial + temporal) / 2, rel=1e-13)
        assert seen.polyakov == pytest.approx(twin.polyakov(links), rel=1e-13)
        assert seen.action_density == pytest.approx(twin.action(links, 1.0) / 192, rel=1e-13)

    def test_a_cold_field_has_ones(self):
        seen = measure(GaugeField((4, 4, 2, 6), threads=1))
        assert (seen.plaquette, seen.plaquette_spatial, seen.plaquette_temporal, seen.polyakov) == (1, 1, 1, 1)
        assert seen.action_density == 0

    @pytest.mark.parametrize("z", CENTRE)
    def test_only_the_polyakov_loop_sees_the_centre(self, z):
        before, after = measure(field_of(sample())), measure(field_of(centre_transformed(sample(), z)))
        assert after.polyakov == pytest.approx(z * before.polyakov, abs=1e-14)
        assert after.plaquette_spatial == pytest.approx(before.plaquette_spatial, rel=1e-13)
        assert after.plaquette_temporal == pytest.approx(before.plaquette_temporal, rel=1e-13)
        assert z3_projection(after.polyakov) == pytest.approx(z3_projection(before.polyakov), abs=1e-14)


class TestCentreProjection:
    points = np.random.default_rng(4).normal(size=(50, 2)).view(complex)[:, 0].tolist()

    @pytest.mark.parametrize("z", CENTRE)
    def test_it_does_not_see_the_centre(self, z):
        for loop in self.points:
            assert z3_projection(z * loop) == pytest.approx(z3_projection(loop), abs=1e-14)

    def test_it_is_the_largest_of_three_real_parts(self):
        for loop in self.points:
            assert z3_projection(loop) == pytest.approx(max((z * loop).real for z in CENTRE), abs=1e-14)
            assert abs(loop) / 2 <= z3_projection(loop) + 1e-14 <= abs(loop) + 2e-14

    def test_special_points(self):
        assert z3_projection(0j) == 0
        assert z3_projection(0.25 + 0j) == 0.25
        assert z3_projection(-0.5 + 0j) == pytest.approx(0.25)  # on the border of two sectors
        for z in CENTRE:
            assert z3_projection(0.5 * z) == pytest.approx(0.5)


class TestWilsonLoops:
    def test_they_equal_walks_around_them(self):
        loops = wilson_loops(sample(), 2, 4)
        assert loops.shape == (2, 4)
        for r in (1, 2):
            for t in (1, 2, 3, 4):
                assert loops[r - 1, t - 1] == pytest.approx(twin.wilson_loop(sample(), r, t), abs=1e-14)

    def test_the_smallest_is_the_temporal_plaquette(self):
        seen = measure(field_of(sample()))
        assert wilson_loops(sample(), 1, 1)[0, 0] == pytest.approx(seen.plaquette_temporal, rel=1e-13)

    def test_they_do_not_depend_on_the_gauge(self):
        turned = twin.transform(sample(), twin.random_transformation(np.random.default_rng(6), (4, 6, 2, 4)))
        assert wilson_loops(turned, 2, 3) == pytest.approx(wilson_loops(sample(), 2, 3), abs=1e-13)

    def test_they_are_one_on_a_cold_field(self):
        assert np.array_equal(wilson_loops(GaugeField((4, 4, 4, 2)).to_links(), 4, 2), np.ones((4, 2)))

    @pytest.mark.parametrize("size", [(0, 1), (1, 0), (3, 1), (1, 5), (-1, 1)])
    def test_loops_that_do_not_fit_are_refused(self, size):
        with pytest.raises(SpecError, match="do not fit"):
            wilson_loops(sample(), *size)


class TestCreutzRatio:
    r, t = np.meshgrid(np.arange(1, 6), np.arange(1, 7), indexing="ij")

    @pytest.mark.parametrize("sigma", [0.05, 0.2, 1.3])
    def test_an_area_law_gives_the_string_tension(self, sigma):
        loops = np.exp(-sigma * self.r * self.t)
        for r in range(2, 6):
            for t in range(2, 7):
                assert creutz_ratio(loops, r, t) == pytest.approx(sigma, rel=1e-12)

    def test_perimeter_and_constant_terms_cancel(self):
        loops = np.exp(-0.2 * self.r * self.t - 0.7 * (self.r + self.t) + 0.3)
        assert creutz_ratio(loops, 3, 4) == pytest.approx(0.2, rel=1e-12)

    def test_noise_below_zero_is_not_a_number(self):
        loops = np.exp(-0.2 * self.r * self.t)
        loops[2, 2] *= -1
        assert math.isnan(creutz_ratio(loops, 3, 3))

    @pytest.mark.parametrize("size", [(1, 2), (2, 1), (0, 0)])
    def test_it_needs_two_sizes(self, size):
        with pytest.raises(SpecError, match="r, t >= 2"):
            creutz_ratio(np.ones((5, 6)), *size)
