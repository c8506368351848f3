"""Every kernel against the NumPy twin, at every build level, on lattices that take every split of the lanes."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import scipy.linalg

from metalforge import native
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from reference import gauge as twin

# Together these cut no, some and all directions in two, plainly and with twists, at the seams of even and odd pieces,
# and with extents of two, where both neighbours are one site; (6, 4, 2, 8) and (4, 8, 2, 6) do not fill the widest
# registers.
SHAPES = [(2, 2, 2, 2), (4, 4, 4, 4), (8, 8, 8, 4), (6, 4, 2, 8), (4, 8, 2, 6), (16, 4, 4, 2), (2, 2, 2, 8)]
SMALL = [(2, 2, 2, 2), (4, 4, 4, 4), (6, 4, 2, 8), (2, 2, 2, 8)]
PRECISIONS = ["f64", "f32"]

SUMS = {"f64": 1e-12, "f32": 1e-5}
"""Relative error of sums over the lattice."""
CHARGE = {"f64": 1e-14, "f32": 1e-7}
"""Error of the topological charge over the largest that the energy allows."""
FORCE = {"f64": 1e-14, "f32": 1e-6}
"""Error of a force component over the largest one."""
UNITARITY = {"f64": 5e-15, "f32": 2e-6}
"""Distance from SU(3) of a link that was made or mended in one go."""
SWEEP = {"f64": 1e-12, "f32": 2e-4}
"""Error of a link after a sweep; divisions by small staples amplify rounding."""

pytestmark = pytest.mark.usefixtures("isa")  # all of it once a build level


def frozen(array):
    array.flags.writeable = False
    return array


@cache
def sample(dims, roughness=0.3):
    return frozen(twin.random_links(np.random.default_rng(sum(dims)), dims, roughness))


@cache
def expected(quantity, dims):
    return getattr(twin, quantity)(sample(dims))


@cache
def sample_force(dims):
    return frozen(twin.force(sample(dims), 1.0))


@cache
def sample_momenta(dims):
    return frozen(np.random.default_rng(11).normal(size=(*dims[::-1], 4, 8)))


def field_of(links, precision="f64", threads=1):
    return GaugeField.from_links(links, precision=precision, threads=threads)


def momenta_of(field, host):
    momenta = Momenta(field)
    momenta.values[...] = twin.momenta_from_host(field, host)
    return momenta


def every_link(a, b):
    """The size of the change of each link."""
    return np.max(np.abs(a - b), axis=(-2, -1))


def test_the_generators_are_orthogonal_and_traceless():
    t = twin.GENERATORS
    assert np.allclose(np.einsum("aij,bji->ab", t, t), np.eye(8) / 2, atol=1e-15)
    assert np.allclose(twin.trace(t), 0, atol=1e-15)
    assert np.array_equal(t, twin.adjoint(t))


def test_the_exponential_of_the_twin_is_that_of_scipy():
    components = np.random.default_rng(9).normal(size=(8, 8)) * np.array([0, 1e-8, 0.1, 1, 1, 5, 20, 50])[:, None]
    wanted = scipy.linalg.expm(1j * twin.hermitian(components))
    assert np.max(np.abs(twin.exp_i(components) - wanted)) <= 5e-14
    assert twin.distance_from_su3(twin.exp_i(components)) <= 5e-14


@pytest.mark.parametrize("dims", SHAPES)
def test_links_come_back_from_the_layout_bit_for_bit(dims):
    links = np.random.default_rng(1).normal(size=(*dims[::-1], 4, 3, 3, 2)).view(complex)[..., 0]
    assert np.array_equal(field_of(links).to_links(), links)
    single = links.astype(np.complex64)
    assert np.array_equal(field_of(single, "f32").to_links(), single)
    assert np.array_equal(np.sort(twin.site_numbers(field_of(links)), axis=None), np.arange(np.prod(dims)))


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_new_field_is_cold(dims, precision):
    field = GaugeField(dims, precision=precision, threads=1)
    assert np.array_equal(field.to_links(), np.broadcast_to(np.eye(3), (*dims[::-1], 4, 3, 3)))
    assert field.plaquette_sums() == (3 * field.volume, 3 * field.volume)
    assert field.action(5.7) == 0
    assert field.polyakov() == 1
    assert field.clover() == (0, 0)


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
class TestMeasurements:
    def test_plaquettes_and_action(self, dims, precision):
        field = field_of(sample(dims), precision)
        assert field.plaquette_sums() == pytest.approx(expected("plaquette_sums", dims), rel=SUMS[precision])
        assert field.action(5.7) == pytest.approx(twin.action(sample(dims), 5.7), rel=SUMS[precision])

    def test_polyakov_loop(self, dims, precision):
        loop = expected("polyakov", dims)
        assert abs(field_of(sample(dims), precision).polyakov() - loop) <= SUMS[precision] * abs(loop)

    def test_clover_energy_and_charge(self, dims, precision):
        energy, charge = expected("clover", dims)
        measured = field_of(sample(dims), precision).clover()
        assert measured[0] == pytest.approx(energy, rel=SUMS[precision])
        # |Q| is at most the action over 8 pi^2: the scale of its terms, which nearly cancel.
        bound = CHARGE[precision] * energy * np.prod(dims) / (8 * np.pi**2)
        assert measured[1] == pytest.approx(charge, abs=bound)
        assert abs(charge) > 100 * bound  # else the line before says nothing

    def test_kinetic_energy(self, dims, precision):
        field = GaugeField(dims, precision=precision, threads=1)
        momenta = momenta_of(field, sample_momenta(dims))
        assert momenta.kinetic() == pytest.approx(np.sum(sample_momenta(dims) ** 2) / 2, rel=SUMS[precision])

    def test_force(self, dims, precision):
        field = field_of(sample(dims), precision)
        force = sample_force(dims)
        bound = FORCE[precision] * np.max(np.abs(force))
        momenta = Momenta(field)
        momenta.kick(1.0)
        assert np.max(np.abs(twin.momenta_to_host(field, momenta.values) + force)) <= bound
        # keep * pi - coefficient * dS/dw, on momenta that are not zero
        momenta = momenta_of(field, sample_momenta(dims))
        momenta.kick(2.5, keep=-0.5)
        wanted = -0.5 * sample_momenta(dims) - 2.5 * force
        assert np.max(np.abs(twin.momenta_to_host(field, momenta.values) - wanted)) <= 5 * bound


def fourth_order(f, h):
    """f'(0) by central differences of fourth order."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


@pytest.mark.parametrize("dims", SMALL)
def test_the_force_is_the_derivative_of_the_action(dims):
    rng = np.random.default_rng(3)
    links = sample(dims, np.inf)
    field = field_of(links)
    momenta = Momenta(field)
    momenta.kick(-1.0)
    force = twin.momenta_to_host(field, momenta.values)
    for _ in range(8):
        link = tuple(rng.integers(n) for n in (*dims[::-1], 4))
        direction = rng.normal(size=8)

        def moved(w, link=link, direction=direction):
            changed = links.copy()
            changed[link] = twin.exp_i(w * direction) @ links[link]
            return field_of(changed).action(1.0)

        assert fourth_order(moved, 4e-3) == pytest.approx(force[link] @ direction, abs=1e-9)


@pytest.mark.parametrize("dims", SMALL)
def test_the_force_is_the_derivative_of_the_action_along_a_move_of_all_links(dims):
    field = field_of(sample(dims))
    momenta = Momenta(field)
    momenta.kick(-1.0)
    pi = sample_momenta(dims)
    along = float(np.sum(twin.momenta_to_host(field, momenta.values) * pi))

    def moved(eps):
        other = field.copy()
        momenta_of(other, pi).move_links(eps)
        return other.action(1.0)

    assert fourth_order(moved, 1e-3) == pytest.approx(along, abs=1e-8 * np.sqrt(field.volume))


@cache
def moved_by_expm(dims, eps):
    return frozen(twin.move(sample(dims), sample_momenta(dims), eps))


class TestMoves:
    @pytest.mark.parametrize("dims", SHAPES)
    @pytest.mark.parametrize("eps", [1e-3, 0.1, -1.0])
    def test_a_move_is_the_exponential(self, dims, eps):
        for precision, bound in (("f64", 5e-15), ("f32", 2e-6)):
            field = field_of(sample(dims), precision)
            momenta_of(field, sample_momenta(dims)).move_links(eps)
            assert np.max(np.abs(field.to_links() - moved_by_expm(dims, eps))) <= bound
            assert twin.distance_from_su3(field.to_links()) <= UNITARITY[precision]

    @pytest.mark.parametrize("dims", SMALL)
    @pytest.mark.parametrize("eps", [7.0, 50.0])
    def test_large_moves_are_squared_together(self, dims, eps):
        """Each squaring doubles the rounding, and the largest momentum of a vector decides how many there are."""
        for precision, bound in (("f64", 1e-13), ("f32", 1e-4)):
            field = field_of(sample(dims), precision)
            momenta_of(field, sample_momenta(dims)).move_links(eps)
            assert np.max(np.abs(field.to_links() - moved_by_expm(dims, eps))) <= bound
            assert twin.distance_from_su3(field.to_links()) <= 2 * bound

    @pytest.mark.parametrize("dims", SHAPES)
    def test_momenta_of_zero_and_steps_of_zero_move_nothing(self, dims):
        for precision in PRECISIONS:
            field = field_of(sample(dims), precision)
            before = field.to_links()
            Momenta(field).move_links(1.0)
            momenta_of(field, sample_momenta(dims)).move_links(0.0)
            assert np.array_equal(field.to_links(), before)

    def test_one_large_momentum_leaves_its_neighbours_in_the_vector_alone(self):
        pi = np.zeros((4, 4, 4, 4, 4, 8))
        pi[1, 2, 3, 0, 2] = 100 * sample_momenta((2, 2, 2, 2))[0, 0, 0, 0, 0]
        links = sample((4, 4, 4, 4))
        field = field_of(links)
        momenta_of(field, pi).move_links(1.0)
        changed = every_link(field.to_links(), links)
        assert changed[1, 2, 3, 0, 2] > 0.1
        changed[1, 2, 3, 0, 2] = 0
        assert np.all(changed == 0)
        assert np.max(np.abs(field.to_links() - twin.move(links, pi, 1.0))) <= 1e-13

    @pytest.mark.parametrize("dims", [(4, 4, 4, 4), (2, 2, 2, 2)])
    def test_there_and_back_again(self, dims):
        field = field_of(sample(dims))
        momenta = momenta_of(field, sample_momenta(dims))
        momenta.move_links(0.3)
        momenta.move_links(-0.3)
        assert np.max(np.abs(field.to_links() - sample(dims))) <= 2e-15


class TestReunitarise:
    @pytest.mark.parametrize("dims", SHAPES)
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_perturbed_links_are_projected_to_the_group(self, dims, precision):
        rng = np.random.default_rng(4)
        noise = rng.normal(size=(2, *sample(dims).shape))
        links = sample(dims) + 1e-3 * (noise[0] + 1j * noise[1])
        field = field_of(links, precision)
        field.reunitarise()
        assert twin.distance_from_su3(field.to_links()) <= {"f64": 2e-15, "f32": 1e-6}[precision]
        assert np.max(np.abs(field.to_links() - twin.gram_schmidt(links))) <= UNITARITY[precision]

    @pytest.mark.parametrize("dims", SHAPES)
    def test_links_of_the_group_are_left_alone(self, dims):
        field = field_of(sample(dims))
        field.reunitarise()
        assert np.max(np.abs(field.to_links() - sample(dims))) <= 1e-15

    def test_a_cold_field_does_not_change_by_a_bit(self):
        field = GaugeField((4, 4, 2, 6), threads=1)
        before = field.to_links()
        field.reunitarise()
        assert np.array_equal(field.to_links(), before)


class TestHotStart:
    @pytest.mark.parametrize("dims", SHAPES)
    def test_links_are_orthonormalised_normals_drawn_by_address(self, dims):
        volume = int(np.prod(dims))
        rows = np.zeros((volume, 4, 3, 3), complex)
        for mu in range(4):
            normals = native.Stream(8, 3).normal(step=0, sites=volume, draws=12, first_draw=2 << 28 | mu << 26)
            rows[:, mu, :2] = normals.view(complex).reshape(volume, 2, 3)
        wanted = twin.gram_schmidt(rows).reshape(*dims[::-1], 4, 3, 3)
        for precision, bound in (("f64", 1e-13), ("f32", 1e-4)):
            hot = GaugeField.hot(dims, seed=8, stream=3, precision=precision, threads=1).to_links()
            assert np.max(np.abs(hot - wanted)) <= bound
            assert twin.distance_from_su3(hot) <= UNITARITY[precision]

    def test_seed_and_stream_name_it(self):
        fields = [
            GaugeField.hot((4, 4, 4, 4), seed=seed, stream=stream).to_links() for seed in (1, 2) for stream in (0, 1)
        ]
        again = GaugeField.hot((4, 4, 4, 4), seed=1).to_links()
        assert np.array_equal(fields[0], again)
        assert all(np.min(every_link(fields[0], other)) > 1e-3 for other in fields[1:])


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_momenta_are_the_normals_of_their_address(dims, precision):
    field = GaugeField(dims, precision=precision, threads=1)
    momenta = Momenta(field)
    momenta.refresh(seed=2026, stream=5, step=17)
    wanted = np.stack(
        [
            native.Stream(2026, 5).normal(step=17, sites=field.volume, draws=8, first_draw=1 << 28 | mu << 26)
            for mu in range(4)
        ],
        axis=1,
    ).reshape(*dims[::-1], 4, 8)
    assert np.array_equal(twin.momenta_to_host(field, momenta.values), wanted.astype(momenta.values.dtype))


@cache
def overrelaxed(dims):
    return frozen(twin.overrelax(sample(dims)))


@cache
def heated(dims, beta):
    def uniform(first_draw, draws):
        sites = int(np.prod(dims))
        return native.Stream(99, 2).uniform(step=7, sites=sites, draws=draws, first_draw=first_draw, threads=1)

    return frozen(twin.heatbath(sample(dims), beta, uniform))


class TestOverrelaxation:
    @pytest.mark.parametrize("dims", SMALL)
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_sweep_equals_the_definition(self, dims, precision):
        field = field_of(sample(dims), precision)
        field.overrelax()
        assert np.max(np.abs(field.to_links() - overrelaxed(dims))) <= SWEEP[precision]

    @pytest.mark.parametrize("dims", SHAPES)
    def test_the_action_stays_and_every_link_moves_within_the_group(self, dims):
        for precision, bound in (("f64", 1e-13), ("f32", 1e-5)):
            field = field_of(sample(dims), precision)
            before = field.action(1.0)
            field.overrelax()
            assert field.action(1.0) == pytest.approx(before, rel=bound)
            assert twin.distance_from_su3(field.to_links()) <= UNITARITY[precision]
            assert np.min(every_link(field.to_links(), sample(dims))) > 1e-3

    def test_a_cold_field_is_a_fixed_point(self):
        field = GaugeField((4, 4, 2, 6), threads=1)
        field.overrelax()
        assert np.max(np.abs(field.to_links() - np.eye(3))) <= 1e-15


class TestHeatbath:
    @pytest.mark.parametrize("dims", [(2, 2, 2, 2), (4, 4, 4, 2)])
    @pytest.mark.parametrize("beta", [0.0, 0.8, 5.7, 100.0])
    def test_a_sweep_equals_the_definition(self, dims, beta):
        for precision in PRECISIONS:
            field = field_of(sample(dims), precision)
            field.heatbath(beta, seed=99, stream=2, step=7)
            assert np.max(np.abs(field.to_links() - heated(dims, beta))) <= SWEEP[precision]

    @pytest.mark.parametrize("dims", SHAPES)
    @pytest.mark.parametrize("beta", [0.0, 5.7])
    def test_every_link_is_redrawn_within_the_group(self, dims, beta):
        for precision in PRECISIONS:
            field = field_of(sample(dims), precision)
            field.heatbath(beta, seed=1, stream=0, step=1)
            assert np.min(every_link(field.to_links(), sample(dims))) > 1e-3
            assert twin.distance_from_su3(field.to_links()) <= UNITARITY[precision]

    def test_the_step_is_part_of_the_address(self):
        fields = []
        for seed, stream, step in ((1, 0, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1)):
            field = field_of(sample((4, 4, 4, 4)))
            field.heatbath(5.7, seed=seed, stream=stream, step=step)
            fields.append(field.to_links())
        assert all(np.min(every_link(fields[0], other)) > 1e-4 for other in fields[1:])

    def test_a_large_beta_cools(self):
        field = field_of(sample((4, 4, 4, 4), np.inf))
        for step in range(1, 30):
            field.heatbath(1e6, seed=1, stream=0, step=step)
        assert field.action(1.0) / (6 * field.volume) < 0.01


class TestSelection:
    @staticmethod
    def update(kind, field, selection):
        if kind == "heatbath":
            field.heatbath(5.7, seed=1, stream=0, step=1, selection=selection)
        else:
            field.overrelax(selection=selection)

    @pytest.mark.parametrize("kind", ["heatbath", "overrelax"])
    @pytest.mark.parametrize("dims", SMALL)
    def test_a_bit_is_a_direction_and_a_parity(self, kind, dims):
        before = sample(dims)
        for mu in range(4):
            for parity in range(2):
                field = field_of(before)
                self.update(kind, field, 1 << (2 * mu + parity))
                changed = every_link(field.to_links(), before) > 1e-3
                wanted = np.zeros_like(changed)
                wanted[..., mu] = twin.parity_mask(before, parity)
                assert np.array_equal(changed, wanted)
                assert np.array_equal(field.to_links()[~wanted], before[~wanted])

    @pytest.mark.parametrize("kind", ["heatbath", "overrelax"])
    def test_the_eight_parts_in_turn_are_the_whole(self, kind):
        """So a sweep updates every link exactly once."""
        whole, parts = field_of(sample((6, 4, 2, 8))), field_of(sample((6, 4, 2, 8)))
        self.update(kind, whole, 255)
        for bit in range(8):
            self.update(kind, parts, 1 << bit)
        assert np.array_equal(whole.links, parts.links)
        self.update(kind, parts, 0)
        assert np.array_equal(whole.links, parts.links)

    @pytest.mark.parametrize("dims", [(8, 8, 8, 32), (16, 8, 18, 8), (32, 16, 16, 2)])
    @pytest.mark.parametrize("selection", [255, 0b10101101])
    def test_a_field_too_large_for_a_cache_is_updated_in_the_same_order(self, dims, selection):
        """It is walked through by time slices; one part at a time leaves no choice of the order."""
        whole, parts = (GaugeField.hot(dims, seed=1, threads=threads) for threads in (2, 1))
        assert whole.links.nbytes > 8 << 20
        self.update("overrelax", whole, selection)
        for bit in range(8):
            self.update("overrelax", parts, selection & 1 << bit)
        assert np.array_equal(whole.links, parts.links)


@pytest.mark.parametrize(
    "kind",
    [
        "heatbath",
        "overrelax",
    ],
)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_link_whose_staples_cancel_stays_in_the_group(kind, precision):
    """The staples of U_x(0) add up to diag(0, 0, 6): the first SU(2) has no direction at all."""
    links = GaugeField((4, 4, 4, 4)).to_links()
    links[0, 0, 0, 1, 1:] = np.diag([-1, -1, 1])
    assert np.array_equal(twin.staple(links, 0)[0, 0, 0, 0], np.diag([0, 0, 6]))
    field = field_of(links, precision)
    TestSelection.update(kind, field, 1)
    assert twin.distance_from_su3(field.to_links()) <= UNITARITY[precision]


@pytest.mark.parametrize("dims", SMALL)
def test_a_heat_bath_at_infinite_temperature_gives_one_field_at_every_level(monkeypatch, dims):
    """Draws are by address; only rounding knows of lanes. At beta = 0 no accept test can tip over by rounding."""
    fields = []
    for name in native.available_levels():
        monkeypatch.setenv("METALFORGE_ISA", name)
        field = field_of(sample(dims))
        field.heatbath(0.0, seed=5, stream=0, step=1)
        fields.append(field.to_links())
    assert all(np.max(np.abs(other - fields[0])) <= 1e-12 for other in fields[1:])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_lattice_fills_the_vectors(isa, precision):
    """Up to eight lanes, whatever the extents; each site lies in one of them."""
    kernels = native.kernels(isa)
    room = kernels.vector_bytes // (8 if precision == "f64" else 4)
    for dims in product((2, 4, 6), (2, 4, 10), (4, 6), (2, 4)):
        layout = getattr(kernels, f"layout_{precision}")(dims)
        assert layout.lanes == (room if all(n % 4 == 0 for n in dims) else min(room, 8))
        assert layout.lanes * layout.vectors == np.prod(dims)


STAGES = np.array([[1.0, 0.1], [0.0, 0.2], [1.0, 0.2], [0.0, 0.2], [1.0, 0.1]])


def run_everything(dims, precision, threads):
    """Every kernel once; the links and momenta after each, then the sums."""
    field = GaugeField.hot(dims, seed=3, precision=precision, threads=threads)
    momenta = Momenta(field)
    seen = [field.to_links()]
    for act in (
        lambda: momenta.refresh(seed=3, stream=1, step=2),
        lambda: momenta.evolve(5.7, STAGES[:2]),
        lambda: momenta.kick(0.3, keep=0.5),
        lambda: momenta.move_links(0.2),
        lambda: field.heatbath(5.7, seed=3, stream=1, step=3),
        field.overrelax,
        field.reunitarise,
    ):
        act()
        seen.extend([field.links.copy(), momenta.values.copy()])
    sums = [*field.plaquette_sums(), momenta.kinetic(), field.polyakov(), *field.clover()]
    return [*seen, GaugeField.from_links(seen[0], precision=precision, threads=threads).links, np.array(sums)]


@pytest.mark.parametrize("dims", [(6, 4, 2, 8), (8, 8, 8, 4)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_number_of_threads_does_not_change_a_bit(dims, precision):
    alone = run_everything(dims, precision, 1)
    for threads in (2, 3):
        together = run_everything(dims, precision, threads)
        assert len(together) == len(alone)
        assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not any(np.isnan(a).any() for a in alone)


@pytest.mark.parametrize("dims", SMALL)
def test_the_stepper_walks_its_stages_in_turn(dims):
    whole, parts = field_of(sample(dims)), field_of(sample(dims))
    pi_whole, pi_parts = momenta_of(whole, sample_momenta(dims)), momenta_of(parts, sample_momenta(dims))
    pi_whole.evolve(5.7, STAGES)
    for kind, coefficient in STAGES:
        if kind == 0:
            pi_parts.move_links(coefficient)
        else:
            pi_parts.kick(5.7 * coefficient)
    assert np.max(np.abs(whole.links - parts.links)) <= 1e-14
    assert np.max(np.abs(pi_whole.values - pi_parts.values)) <= 1e-13


def test_a_copy_is_independent():
    field = field_of(sample((4, 4, 4, 4)))
    other = field.copy()
    other.overrelax()
    assert np.array_equal(field.to_links(), sample((4, 4, 4, 4)))
    assert field.links.ctypes.data % 64 == other.links.ctypes.data % 64 == 0
