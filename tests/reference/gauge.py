"""SU(3) gauge theory in NumPy: the definition of what the kernels compute.

Links are complex128 of shape (Nt, Nz, Ny, Nx, 4, 3, 3); the axis of direction mu = 0 .. 3 = x, y, z, t is 3 - mu.
Everything that closes is a walk: steps mu go forward, ~mu backward, so that [mu, nu, ~mu, ~nu] is a plaquette.
"""

from itertools import combinations, permutations

import numpy as np

SUBGROUPS = ((0, 1), (0, 2), (1, 2))
HEATBATH_DRAWS, HEATBATH_ATTEMPTS = 3 << 28, 1000


def _gell_mann():
    matrices = []
    for j in (1, 2):
        for i in range(j):
            symmetric, antisymmetric = np.zeros((2, 3, 3), complex)
            symmetric[i, j] = symmetric[j, i] = 1
            antisymmetric[i, j], antisymmetric[j, i] = -1j, 1j
            matrices += [symmetric, antisymmetric]
        if j == 1:
            matrices.append(np.diag([1, -1, 0]).astype(complex))
    matrices.append(np.diag([1, 1, -2]) / np.sqrt(3))
    return np.array(matrices)


GENERATORS = _gell_mann() / 2
"""T_a = lambda_a / 2 in the usual order, tr T_a T_b = delta_ab / 2."""


def adjoint(m):
    return m.conj().swapaxes(-1, -2)


def trace(m):
    return np.trace(m, axis1=-2, axis2=-1)


def dims_of(links):
    return links.shape[3::-1]


def hermitian(components):
    """sum_a c_a T_a."""
    return np.einsum("...a,aij->...ij", components, GENERATORS)


def exp_i(components):
    """exp(i sum_a c_a T_a): the series of a small part, squared, in extended precision where the platform has it.

    scipy.linalg.expm, which the tests hold against this, solves by threaded LAPACK and crawls on a busy machine.
    """
    h = 1j * hermitian(components)
    squarings = 1 + max(0, int(np.ceil(np.log2(np.max(np.sum(np.abs(h), axis=-1), initial=1.0)))))
    small = h.astype(np.clongdouble) / 2**squarings
    term = result = np.broadcast_to(np.eye(3, dtype=np.clongdouble), h.shape)
    for n in range(1, 22):
        term = term @ small / n
        result = result + term
    for _ in range(squarings):
        result = result @ result
    return result.astype(complex)


def random_su3(rng, shape):
    """Haar: Q of a QR decomposition of Gaussian matrices, its phases fixed, over a cube root of its determinant."""
    q, r = np.linalg.qr(rng.normal(size=(*shape, 3, 3)) + 1j * rng.normal(size=(*shape, 3, 3)))
    phases = np.diagonal(r, axis1=-2, axis2=-1)
    q = q * (phases / np.abs(phases))[..., None, :]
    return q / np.linalg.det(q)[..., None, None] ** (1 / 3)


def random_transformation(rng, dims):
    return random_su3(rng, tuple(dims)[::-1])


def random_links(rng, dims, roughness=np.inf):
    """Haar links, or exp(i roughness * normal) seen from a random gauge: no link is near one, but plaquettes are."""
    shape = (*tuple(dims)[::-1], 4)
    if roughness == np.inf:
        return gram_schmidt(random_su3(rng, shape))
    smooth = exp_i(roughness * rng.normal(size=(*shape, 8)))
    return gram_schmidt(transform(smooth, random_transformation(rng, dims)))


def shift(field, mu, by=1):
    """The field at x + by mu."""
    return np.roll(field, -by, axis=3 - mu)


def transform(links, g):
    """U_mu(x) -> g(x) U_mu(x) g(x + mu)^dagger."""
    return np.stack([g @ links[..., mu, :, :] @ adjoint(shift(g, mu)) for mu in range(4)], axis=4)


def swap_axes(links, mu, nu):
    """The lattice with directions mu and nu exchanged: a reflection at the diagonal."""
    order = list(range(4))
    order[mu], order[nu] = nu, mu
    return np.swapaxes(links, 3 - mu, 3 - nu)[..., order, :, :]


def reflect(links, mu):
    """The lattice seen in a mirror: x_mu -> -x_mu; a link along mu from -x - 1 to -x becomes its adjoint."""
    out = shift(np.flip(links, axis=3 - mu), mu, -1)
    out[..., mu, :, :] = adjoint(shift(out[..., mu, :, :], mu))
    return out


def walk(links, path):
    """The product of links along a path from every site; ~mu is a step backward."""
    product = np.broadcast_to(np.eye(3, dtype=complex), (*links.shape[:4], 3, 3))
    at = [0, 0, 0, 0]
    for step in path:
        mu = max(step, ~step)
        at[mu] -= step < 0
        u = np.roll(links[..., mu, :, :], [-n for n in at], axis=[3, 2, 1, 0])
        product = product @ (u if step >= 0 else adjoint(u))
        at[mu] += step >= 0
    return product


def plaquette_sum(links, mu, nu):
    return float(np.sum(trace(walk(links, [mu, nu, ~mu, ~nu])).real)) / 3


def plaquette_sums(links):
    """Sums of Re tr U_p / 3 over the spatial and over the temporal planes."""
    spatial = sum(plaquette_sum(links, mu, nu) for mu, nu in ((0, 1), (0, 2), (1, 2)))
    return spatial, sum(plaquette_sum(links, mu, 3) for mu in range(3))


def action(links, beta):
    return beta * (6 * np.prod(links.shape[:4]) - sum(plaquette_sums(links)))


def staple(links, mu):
    """A with sum_p Re tr U_p = Re tr(U_mu(x) A) + terms without U_mu(x): six ways back from x + mu to x."""
    others = [nu for nu in range(4) if nu != mu]
    return shift(sum(walk(links, [nu, ~mu, ~nu]) + walk(links, [~nu, ~mu, nu]) for nu in others), mu)


def force(links, beta):
    """F_a = dS/dw_a for U -> exp(i w_a T_a) U: -(beta / 3) Re tr(i T_a U A), shape (Nt, Nz, Ny, Nx, 4, 8)."""
    ua = np.stack([links[..., mu, :, :] @ staple(links, mu) for mu in range(4)], axis=4)
    return beta / 3 * np.einsum("aij,...ji->...a", GENERATORS, ua).imag


def move(links, momenta, eps):
    """U -> exp(i eps pi_a T_a) U."""
    return exp_i(eps * momenta) @ links


def polyakov(links):
    """tr / 3 of the closed line in time, averaged over space."""
    return complex(np.mean(trace(walk(links, [3] * links.shape[0])[0]))) / 3


def field_strength(links, mu, nu):
    """The traceless Hermitian part of the four leaves around a site over 4 i."""
    paths = [[mu, nu, ~mu, ~nu], [nu, ~mu, ~nu, mu], [~mu, ~nu, mu, nu], [~nu, mu, nu, ~mu]]
    leaves = sum(walk(links, path) for path in paths)
    f = (leaves - adjoint(leaves)) / 8j
    return f - trace(f)[..., None, None] / 3 * np.eye(3)


def clover(links):
    """E = tr F_mu,nu F_mu,nu / 2, a mean over sites, and Q = eps_mu,nu,rho,sigma tr F_mu,nu F_rho,sigma / (32 pi^2)."""
    f = {}
    for mu, nu in combinations(range(4), 2):
        f[mu, nu] = field_strength(links, mu, nu)
        f[nu, mu] = -f[mu, nu]
    energy = sum(np.mean(trace(g @ g).real) for g in f.values()) / 2
    charge = 0.0
    for mu, nu, rho, sigma in permutations(range(4)):
        sign = np.linalg.det(np.eye(4)[[mu, nu, rho, sigma]])
        charge += sign * np.sum(trace(f[mu, nu] @ f[rho, sigma]).real) / (32 * np.pi**2)
    return energy, charge


def wilson_loop(links, r, t):
    """<Re tr / 3> of r x t loops, averaged over sites and spatial directions."""
    loops = [trace(walk(links, [mu] * r + [3] * t + [~mu] * r + [~3] * t)).real for mu in range(3)]
    return float(np.mean(loops)) / 3


def gram_schmidt(links):
    """Rows made orthonormal in turn, the third one the conjugate of the product of the first two."""
    a = links[..., 0, :] / np.linalg.norm(links[..., 0, :], axis=-1, keepdims=True)
    b = links[..., 1, :] - np.sum(a.conj() * links[..., 1, :], axis=-1, keepdims=True) * a
    b = b / np.linalg.norm(b, axis=-1, keepdims=True)
    return np.stack([a, b, np.cross(a, b).conj()], axis=-2)


def distance_from_su3(links):
    """The largest entry of U U^dagger - 1, or the distance of a determinant from one."""
    unitarity = np.max(np.abs(links @ adjoint(links) - np.eye(3)))
    return float(max(unitarity, np.max(np.abs(np.linalg.det(links) - 1))))


def parity_mask(links, parity):
    return np.sum(np.indices(links.shape[:4]), axis=0) % 2 == parity


def _sweep(links, rotation):
    """Every link once: directions in turn, even then odd sites, three SU(2) subgroups from the left.

    `rotation(k, v, mu, subgroup, mask)` gives the SU(2) matrices g from the subgroup's part k V of U A.
    """
    links = links.copy()
    for mu in range(4):
        for parity in range(2):
            mask = parity_mask(links, parity)
            u = links[mask, mu]
            a = staple(links, mu)[mask]
            for s, (i, j) in enumerate(SUBGROUPS):
                block = (u @ a)[:, [i, j]][:, :, [i, j]]
                flip = np.array([[0, 1], [-1, 0]])
                part = (block + flip.T @ block.conj() @ flip) / 2  # the multiple of an SU(2) matrix in it
                k = np.sqrt(np.linalg.det(part).real)
                g = rotation(k, part / k[:, None, None], mu, s, mask)
                rows = u[:, [i, j]]
                u[:, [i, j]] = g @ rows
            links[mask, mu] = u
    return links


def overrelax(links):
    """g = V^dagger V^dagger, which keeps Re tr(g V) as it is."""
    return _sweep(links, lambda k, v, mu, s, mask: adjoint(v) @ adjoint(v))


def heatbath(links, beta, uniform):
    """g = X V^dagger with density exp(alpha x0) of X, alpha = 2 beta k / 3.

    `uniform(first_draw, draws)` gives the uniforms of all sites, shape (sites, draws); attempt n uses blocks 3 n and
    3 n + 1, and the direction block 3 * HEATBATH_ATTEMPTS.
    """

    def rotation(k, v, mu, s, mask):
        base = HEATBATH_DRAWS | mu << 26 | s << 24
        attempts = uniform(base, 6 * 60)[mask.ravel()].reshape(len(k), 60, 6)
        direction = uniform(base + 3 * HEATBATH_ATTEMPTS, 2)[mask.ravel()]
        alpha = 2 / 3 * beta * k
        x0 = np.array([_draw_x0(a, rows) for a, rows in zip(alpha, attempts, strict=True)])
        radius = np.sqrt(1 - x0**2)
        x3 = radius * (2 * direction[:, 0] - 1)
        angle = 2 * np.pi * direction[:, 1]
        rest = np.sqrt(radius**2 - x3**2)
        x1, x2 = rest * np.cos(angle), rest * np.sin(angle)
        x = np.array([[x0 + 1j * x3, x2 + 1j * x1], [-x2 + 1j * x1, x0 - 1j * x3]])
        return np.moveaxis(x, -1, 0) @ adjoint(v)

    return _sweep(links, rotation)


def _draw_x0(alpha, attempts):
    """Density sqrt(1 - x0^2) exp(alpha x0): Kennedy and Pendleton, or a flat proposal where alpha is small."""
    for u1, u2, v1, v2, *_ in attempts:
        if alpha < 1.5:
            x0 = 2 * v2 - 1
            if u1 < np.sqrt(1 - x0**2) * np.exp(alpha * (x0 - 1)):
                return x0
        else:
            delta = -(np.log(u1) + np.cos(2 * np.pi * u2) ** 2 * np.log(v1)) / alpha
            if v2**2 < 1 - delta / 2:
                return 1 - delta
    raise AssertionError("60 attempts were not enough")


def site_numbers(field):
    """The site (x fastest) that each (vector, lane) of a field holds: numbered links go in, and are looked up."""
    numbers = np.zeros((*field.dims[::-1], 4, 3, 3), complex)
    numbers[..., 0, 0] = np.arange(field.volume).reshape(*field.dims[::-1], 1)
    packed = type(field).from_links(numbers, precision=field.precision, threads=1)
    return packed.links[:, 0, 0, :].astype(int)


def momenta_to_host(field, values):
    """Momenta in the layout of the kernels as (Nt, Nz, Ny, Nx, 4, 8)."""
    host = np.empty((field.volume, 4, 8))
    host[site_numbers(field)] = np.moveaxis(values, 3, 1)
    return host.reshape(*field.dims[::-1], 4, 8)


def momenta_from_host(field, host):
    """The other way."""
    return np.moveaxis(host.reshape(field.volume, 4, 8)[site_numbers(field)], 1, 3)
