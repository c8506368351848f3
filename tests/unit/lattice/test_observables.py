import cmath
import math
from functools import cache

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import GaugeField, measure, wilson_loop, z3_projection
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
        assert 6 * (1 - seen.plaquette) == pytest.approx(twin.action(links, 1.0) / 192, rel=1e-13)

    def test_a_cold_field_has_ones(self):
        seen = measure(GaugeField((4, 4, 2, 6), threads=1))
        assert (seen.plaquette, seen.plaquette_spatial, seen.plaquette_temporal, seen.polyakov) == (1, 1, 1, 1)

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
        for r in (1, 2):
            for t in (1, 2, 3, 4):
                assert wilson_loop(sample(), r, t) == pytest.approx(twin.wilson_loop(sample(), r, t), abs=1e-14)

    def test_the_smallest_is_the_temporal_plaquette(self):
        seen = measure(field_of(sample()))
        assert wilson_loop(sample(), 1, 1) == pytest.approx(seen.plaquette_temporal, rel=1e-13)

    def test_they_do_not_depend_on_the_gauge(self):
        turned = twin.transform(sample(), twin.random_transformation(np.random.default_rng(6), (4, 6, 2, 4)))
        assert wilson_loop(turned, 2, 3) == pytest.approx(wilson_loop(sample(), 2, 3), abs=1e-13)

    def test_they_are_one_on_a_cold_field(self):
        assert wilson_loop(GaugeField((4, 4, 4, 2)).to_links(), 4, 2) == 1

    @pytest.mark.parametrize("size", [(0, 1), (1, 0), (3, 1), (1, 5), (-1, 1)])
    def test_loops_that_do_not_fit_are_refused(self, size):
        with pytest.raises(SpecError, match="do not fit"):
            wilson_loop(sample(), *size)
