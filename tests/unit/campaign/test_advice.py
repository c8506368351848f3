"""What is said before a run: small lattices."""

from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.published import cautions


def lattice_of(*volumes):
    return Lattice(volumes=volumes, beta_min=5.0, beta_max=6.0)


def test_an_aspect_ratio_below_two_is_said_and_two_is_fine():
    assert cautions(lattice_of((8, 8, 8, 4), (16, 16, 16, 4))) == ()
    (said,) = cautions(lattice_of((8, 8, 8, 4), (8, 8, 8, 6)))
    assert "8^3x6" in said
    assert "12" in said
