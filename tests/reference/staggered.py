"""One-link staggered fermions in NumPy: the definition of what the kernels and the pseudofermions compute.

Colour fields are complex128 of shape (Nt, Nz, Ny, Nx, 3) on all sites; a field of one parity has zeros on the other.

    (D psi)(x) = m psi(x) + (H psi)(x)
    (H psi)(x) = 1/2 sum_mu eta_mu(x) [U_mu(x) psi(x + mu) - U_mu(x - mu)^dagger psi(x - mu)]

with eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x + y), eta_t = (-1)^(x + y + z), antiperiodic in t. H is anti-Hermitian
and joins sites of opposite parity, so D^dagger D = m^2 - H^2 never mixes parities.
"""

import numpy as np

from reference.gauge import GENERATORS, adjoint, parity_mask, shift

ANTIPERIODIC, PERIODIC = -1, +1


def phases(dims, boundary=ANTIPERIODIC):
    """eta_mu(x), times the sign of the boundary for links that cross it in t; shape (Nt, Nz, Ny, Nx, 4)."""
    t, z, y, x = np.indices(tuple(dims)[::-1])
    signs = np.stack([np.ones_like(x), (-1) ** x, (-1) ** (x + y), (-1) ** (x + y + z)], axis=-1).astype(float)
    signs[t == dims[3] - 1, 3] *= boundary
    return signs


def with_phases(links, boundary=ANTIPERIODIC):
    """V_mu(x) = eta_mu(x) U_mu(x), the sign of the boundary folded in: then H is a plain difference."""
    return phases(links.shape[3::-1], boundary)[..., None, None] * links


def apply_links(links, psi):
    """U psi, site by site."""
    return np.einsum("...ij,...j->...i", links, psi)


def hop(links, psi, boundary=ANTIPERIODIC):
    """H psi."""
    v = with_phases(links, boundary)
    out = np.zeros_like(psi, dtype=complex)
    for mu in range(4):
        out += apply_links(v[..., mu, :, :], shift(psi, mu))
        out -= shift(apply_links(adjoint(v[..., mu, :, :]), psi), mu, -1)
    return out / 2


def dirac(links, psi, mass, boundary=ANTIPERIODIC):
    """D psi."""
    return mass * psi + hop(links, psi, boundary)


def dirac_dagger(links, psi, mass, boundary=ANTIPERIODIC):
    """D^dagger psi = m psi - H psi."""
    return mass * psi - hop(links, psi, boundary)


def normal(links, psi, mass, shift=0.0, boundary=ANTIPERIODIC):
    """(D^dagger D + shift) psi = (m^2 + shift) psi - H H psi; a field of one parity stays on it."""
    return (mass**2 + shift) * psi - hop(links, hop(links, psi, boundary), boundary)


def sites_of(links, parity=None):
    """The flat indices of the components on sites of one parity (0 even, 1 odd), or of all."""
    mask = np.ones(links.shape[:4], bool) if parity is None else parity_mask(links, parity)
    return np.flatnonzero(np.repeat(mask.ravel(), 3))


def dense(operator, links, parity=None, **options):
    """The matrix of `operator(links, psi, **options)` between sites of one parity, by its columns."""
    rows = sites_of(links, parity)
    matrix = np.empty((len(rows), len(rows)), complex)
    for column, place in enumerate(rows):
        unit = np.zeros((*links.shape[:4], 3), complex)
        unit.reshape(-1)[place] = 1
        matrix[:, column] = operator(links, unit, **options).reshape(-1)[rows]
    return matrix


def spectrum(links, mass, boundary=ANTIPERIODIC):
    """Eigenvalues (ascending) and eigenvectors of (D^dagger D)_ee as a dense matrix; for small lattices."""
    return np.linalg.eigh(dense(normal, links, parity=0, mass=mass, boundary=boundary))


def apply_function(links, psi, mass, function, boundary=ANTIPERIODIC):
    """f(D^dagger D) psi for psi on even sites, by the whole spectrum."""
    values, vectors = spectrum(links, mass, boundary)
    rows = sites_of(links, 0)
    out = np.zeros(psi.size, complex)
    out[rows] = vectors @ (function(values) * (vectors.conj().T @ psi.reshape(-1)[rows]))
    return out.reshape(psi.shape)


def dot(a, b):
    """a^dagger b."""
    return complex(np.vdot(a, b))


def action(links, phi, mass, power=-1.0, boundary=ANTIPERIODIC):
    """S = phi^dagger (D^dagger D)^power phi for phi on even sites."""
    return dot(phi, apply_function(links, phi, mass, lambda x: x**power, boundary)).real


def log_determinant(links, mass, boundary=ANTIPERIODIC):
    """log det (D^dagger D)_ee = log det D, the weight of four flavours."""
    return float(np.sum(np.log(spectrum(links, mass, boundary)[0])))


def bilinear(links, x, mass, boundary=ANTIPERIODIC):
    """X^dagger D^dagger D X for X on even sites."""
    return dot(x, normal(links, x, mass, boundary=boundary)).real


def force(links, x, boundary=ANTIPERIODIC):
    """F_a = d/dw_a [X^dagger D^dagger D X], X held fixed, for U -> exp(i w_a T_a) U; (Nt, Nz, Ny, Nx, 4, 8).

    With Y = H X on odd sites the derivative is 2 Re Y^dagger dH X, and a link enters H twice: forward at x, as i T_a V,
    and backward at x + mu, as its adjoint. So F_a = Im tr T_a V_mu(x) [Y(x + mu) X(x)^dagger - X(x + mu) Y(x)^dagger].
    The real part of i tr T_a M is the component along T_a of the traceless anti-Hermitian part of M.
    """
    v = with_phases(links, boundary)
    y = hop(links, x, boundary)
    out = np.empty((*links.shape[:5], 8))
    for mu in range(4):
        outer = np.einsum("...i,...j->...ij", shift(y, mu), x.conj())
        outer -= np.einsum("...i,...j->...ij", shift(x, mu), y.conj())
        out[..., mu, :] = np.einsum("aij,...ji->...a", GENERATORS, v[..., mu, :, :] @ outer).imag
    return out


def power_force(links, phi, mass, power=-1.0, boundary=ANTIPERIODIC):
    """dS/dw_a of S = phi^dagger (D^dagger D)^power phi, exactly, from first order perturbation theory.

    d f(A) = sum_kl v_k v_k^dagger dA v_l v_l^dagger (f_k - f_l) / (a_k - a_l). With c = v^dagger phi the weights are a
    Hermitian matrix W; its eigenvectors turn the double sum into one of bilinears X^dagger dA X.
    """
    values, vectors = spectrum(links, mass, boundary)
    rows = sites_of(links, 0)
    c = vectors.conj().T @ phi.reshape(-1)[rows]
    f = values**power
    gap = values[:, None] - values[None, :]
    near = np.abs(gap) < 1e-9 * values[-1]
    slope = np.where(near, power * values[:, None] ** (power - 1), (f[:, None] - f[None, :]) / np.where(near, 1, gap))
    weights, modes = np.linalg.eigh(slope * np.outer(c, c.conj()))
    out = np.zeros((*links.shape[:5], 8))
    for weight, mode in zip(weights, modes.T, strict=True):
        if abs(weight) > 1e-14 * np.max(np.abs(weights)):
            x = np.zeros(phi.size, complex)
            x[rows] = vectors @ mode
            out += weight * force(links, x.reshape(phi.shape), boundary)
    return out


def momenta_of(dims, boundary=ANTIPERIODIC):
    """p_mu on the dual lattice, four arrays that broadcast to (Nt, Nz, Ny, Nx)."""
    momenta = [2 * np.pi * np.arange(n) / n for n in dims]
    if boundary == ANTIPERIODIC:
        momenta[3] = momenta[3] + np.pi / dims[3]
    return [p.reshape([-1 if axis == 3 - mu else 1 for axis in range(4)]) for mu, p in enumerate(momenta)]


def free_denominator(dims, mass, boundary=ANTIPERIODIC):
    """m^2 + sum_mu sin^2 p_mu: the eigenvalues of D^dagger D at U = 1, each three times (colours)."""
    return mass**2 + sum(np.sin(p) ** 2 for p in momenta_of(dims, boundary))


def free_condensate(dims, mass, boundary=ANTIPERIODIC):
    """(1/V) tr D^-1 at U = 1: (3/V) sum_p m / (m^2 + sum sin^2 p_mu)."""
    return 3 * float(np.mean(mass / free_denominator(dims, mass, boundary)))


def free_propagator(dims, mass, boundary=ANTIPERIODIC):
    """D^-1(x, 0) at U = 1, for one colour, shape (Nt, Nz, Ny, Nx).

    (1/V) sum_p e^(ipx) [m - i sum_mu eta_mu(x) sin p_mu] / (m^2 + sum sin^2 p_mu).
    """
    t = np.indices(tuple(dims)[::-1])[0]
    eta = phases(dims, PERIODIC)
    denominator = free_denominator(dims, mass, boundary)
    p = momenta_of(dims, boundary)
    twist = np.exp(1j * t * float(p[3].ravel()[0]))

    def transform(numerator):
        return np.fft.ifftn(numerator / denominator) * twist

    out = mass * transform(np.ones_like(denominator))
    for mu in range(4):
        out -= 1j * eta[..., mu] * transform(np.sin(p[mu]) * np.ones_like(denominator))
    return out


def noise(rng, links, parity=None):
    """Gaussian noise with <|eta_i|^2> = 1 (each real part of variance 1/2) on sites of one parity, or on all."""
    eta = (rng.normal(size=(*links.shape[:4], 3)) + 1j * rng.normal(size=(*links.shape[:4], 3))) / np.sqrt(2)
    return eta if parity is None else eta * parity_mask(links, parity)[..., None]
