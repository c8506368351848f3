"""Configurations evaluated again in higher precision, against the kernels and with an error put in."""

import pytest

from metalforge.lattice.field import GaugeField
from metalforge.lattice.observables import evaluate_again, measure


@pytest.mark.parametrize(("precision", "digits"), [("f64", 1e-14), ("f32", 3e-7)])
def test_the_kernels_agree_with_the_wider_evaluation(precision, digits):
    field = GaugeField.hot((4, 4, 2, 4), seed=3, precision=precision)
    seen, again = measure(field), evaluate_again(field.to_links(), precision)
    assert again.plaquette == pytest.approx(seen.plaquette, abs=digits)
    assert again.polyakov == pytest.approx(seen.polyakov, abs=digits)
    assert again.action_density == pytest.approx(6 * (1 - seen.plaquette), abs=10 * digits)


def test_a_spoiled_link_is_seen():
    field = GaugeField.hot((4, 4, 4, 2), seed=3)
    links = field.to_links()
    links[0, 1, 2, 3, 0, 0, 0] += 1e-6
    assert abs(evaluate_again(links, "f64").plaquette - measure(field).plaquette) > 1e-10
