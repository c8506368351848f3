import numpy as np
import pytest

from metalforge.lattice.io import ConfigurationFileError
from metalforge.lattice.io import _links as files
from metalforge.lattice.io._links import (
    HeaderFields,
    as_links,
    check_special_unitary,
    dims_of,
    link_trace,
    nersc_sum,
    ready_to_write,
    rotated_xor,
    third_row,
)
from metalforge.lattice.observables import plaquette_of, polyakov_of
from reference.lattice_io import milc_sums, plaquette_by_loops, random_links

DIMS = (4, 2, 3, 2)
LINKS = random_links(DIMS)
UNIT = np.broadcast_to(np.eye(3, dtype=complex), (2, 2, 2, 2, 4, 3, 3)).copy()


def test_shapes_and_sizes_are_each_others_inverse():
    assert dims_of(LINKS) == DIMS
    assert np.array_equal(as_links(LINKS.reshape(-1).view(float), DIMS), LINKS)


def test_unit_links_have_plaquette_and_link_trace_one():
    assert plaquette_of(UNIT) == pytest.approx(1, abs=1e-15)
    assert link_trace(UNIT) == pytest.approx(1, abs=1e-15)


def test_plaquette_agrees_with_a_loop_over_sites_on_an_uneven_lattice():
    assert plaquette_of(LINKS) == pytest.approx(plaquette_by_loops(LINKS), abs=1e-14)
    assert link_trace(LINKS) == pytest.approx(np.mean([np.trace(u).real for u in LINKS.reshape(-1, 3, 3)]) / 3)


def test_plaquette_does_not_see_a_gauge_transformation_but_the_link_trace_does():
    g = random_links(DIMS, seed=11)[..., 0, :, :]
    turned = np.empty_like(LINKS)
    for mu, axis in enumerate((3, 2, 1, 0)):
        turned[..., mu, :, :] = g @ LINKS[..., mu, :, :] @ np.roll(g, -1, axis=axis).conj().swapaxes(-1, -2)
    assert plaquette_of(turned) == pytest.approx(plaquette_of(LINKS), abs=1e-14)
    assert abs(link_trace(turned) - link_trace(LINKS)) > 1e-3


def test_the_polyakov_loop_agrees_with_a_product_site_by_site():
    lines = [
        np.linalg.multi_dot(LINKS[:, z, y, x, 3]) if len(LINKS) > 2 else LINKS[0, z, y, x, 3] @ LINKS[1, z, y, x, 3]
        for z, y, x in np.ndindex(LINKS.shape[1:4])
    ]
    assert polyakov_of(LINKS) == pytest.approx(np.mean([np.trace(line) for line in lines]) / 3)


def test_third_row_completes_su3_matrices():
    assert np.allclose(third_row(LINKS), LINKS[..., 2, :], atol=1e-14)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda u: u * 1.001,
        lambda u: u * np.exp(0.01j),  # unitary, but the determinant is not one
        lambda u: u[[1, 0, 2]],  # determinant minus one
        lambda u: u * np.nan,
        lambda u: u * 1e200,
    ],
)
def test_a_link_outside_su3_is_named_with_its_place(spoil):
    links = LINKS.copy()
    links[1, 2, 0, 3, 2] = spoil(links[1, 2, 0, 3, 2])
    with pytest.raises(ConfigurationFileError, match=r"\(3, 0, 2, 1\), mu = 2 .*SU\(3\)(.|\n)*verify=False"):
        check_special_unitary(links, "f64", "data")


def test_single_precision_is_granted_its_rounding_and_no_more():
    rounded = LINKS.astype(np.complex64).astype(complex)
    with pytest.raises(ConfigurationFileError, match=r"1e-10 .*f64"):
        check_special_unitary(rounded, "f64", "data")
    assert check_special_unitary(rounded, "f32", "data") is None
    with pytest.raises(ConfigurationFileError, match="for f32"):
        check_special_unitary(rounded * 1.001, "f32", "data")


def test_rotated_xor_agrees_with_a_loop_over_words_across_chunks(monkeypatch):
    monkeypatch.setattr("metalforge.lattice.io._links._CHUNK", 899)
    words = np.random.default_rng(3).integers(0, 2**32, size=2500, dtype=np.uint32)
    assert rotated_xor(words) == milc_sums(words)
    assert rotated_xor(words[:5]) == milc_sums(words[:5])


def test_nersc_sum_of_unit_links_is_that_of_three_ones_per_link():
    # 1.0 is 0x3ff00000 00000000 in double and 0x3f800000 in single precision.
    n_links = 16 * 4
    assert nersc_sum(UNIT.view(np.float64)) == (3 * n_links * 0x3FF00000) % 2**32
    assert nersc_sum(UNIT.astype(np.complex64).view(np.float32)) == (3 * n_links * 0x3F800000) % 2**32


@pytest.mark.parametrize("text", ["", "0", "-4", "4.0", "1_0", "0x4", "٤", "9" * 10, "9" * 5000])
def test_an_extent_is_a_positive_number_in_plain_digits(text):
    with pytest.raises(ConfigurationFileError, match=r"lx: .*positive"):
        HeaderFields(lx=text).dims(["lx"])


@pytest.mark.parametrize("links", [LINKS.real, LINKS[0], LINKS[..., :3, :, :], LINKS[:0], [[1j]]])
def test_arrays_that_are_no_links_are_refused(links):
    with pytest.raises(ConfigurationFileError, match="links must"):
        ready_to_write(links)


def test_reading_refuses_what_has_no_size(tmp_path):
    with pytest.raises(ConfigurationFileError, match="regular file"), files.opened(tmp_path):
        pass
    with pytest.raises(ConfigurationFileError, match="No such file"), files.opened(tmp_path / "absent"):
        pass


def test_a_replaced_file_keeps_link_and_permissions_of_a_new_file(tmp_path):
    target, link, plain = tmp_path / "target", tmp_path / "link", tmp_path / "plain"
    target.write_bytes(b"old")
    link.symlink_to(target)
    plain.write_bytes(b"")
    with files.replacing(link) as stream:
        stream.write(b"new")
        assert target.read_bytes() == b"old"
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode == plain.stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "plain", "target"]
