"""Actions of plaquettes and rectangles in NumPy: S = beta sum [c0 (1 - P) + c1 (1 - R)], c0 = 1 - 8 c1.

The chain at the end is an independent one: link by link, Metropolis with small random rotations, no dynamics.
"""

from itertools import permutations

import numpy as np

from .gauge import GENERATORS, adjoint, exp_i, plaquette_sums, random_links, shift, staple, trace, walk

TREE_LEVEL = -1 / 12


def rectangle_sum(links):
    """Sum of Re tr U_r / 3 over all rectangles; the long side is along mu."""
    paths = [[mu, mu, nu, ~mu, ~mu, ~nu] for mu, nu in permutations(range(4), 2)]
    return sum(float(np.sum(trace(walk(links, path)).real)) for path in paths) / 3


def energy(links, c1=TREE_LEVEL):
    """S / beta."""
    volume = np.prod(links.shape[:4])
    plaquettes, rectangles = 6 * volume - sum(plaquette_sums(links)), 12 * volume - rectangle_sum(links)
    return (1 - 8 * c1) * plaquettes + c1 * rectangles


def rectangle_staple(links, mu):
    """Eighteen ways back from x + mu to x: the link is an end of the long side, its other end, or the short side."""
    ways = []
    for nu in set(range(4)) - {mu}:
        for side, back in ((nu, ~nu), (~nu, nu)):
            ways += [[mu, side, ~mu, ~mu, back], [side, ~mu, ~mu, back, mu], [side, side, ~mu, back, back]]
    return shift(sum(walk(links, way) for way in ways), mu)


def weighted_staple(links, mu, c1=TREE_LEVEL):
    return (1 - 8 * c1) * staple(links, mu) + c1 * rectangle_staple(links, mu)


def force(links, beta, c1=TREE_LEVEL):
    ua = np.stack([links[..., mu, :, :] @ weighted_staple(links, mu, c1) for mu in range(4)], axis=4)
    return beta / 3 * np.einsum("aij,...ji->...a", GENERATORS, ua).imag


def colours(shape, mu):
    """Eight sets of sites whose links along mu share no loop: (sum of coordinates mod 4, x_mu mod 2)."""
    x = np.indices(shape)
    label = np.sum(x, axis=0) % 4 * 2 + x[3 - mu] % 2
    return [label == n for n in range(8)]


def metropolis(links, beta, rng, *, c1=TREE_LEVEL, width=0.25, hits=8):
    """Every link once, `hits` proposals each; returns the links and the share of proposals that was taken.

    Proposals are a random pool and its adjoints, so that each step is as likely as the one back.
    """
    pool = exp_i(width * rng.normal(size=(64, 8)))
    pool = np.concatenate([pool, adjoint(pool)])
    links, taken = links.copy(), []
    for mu in range(4):
        for mask in colours(links.shape[:4], mu):
            a = weighted_staple(links, mu, c1)[mask]
            u = links[mask, mu]
            for _ in range(hits):
                proposal = pool[rng.integers(len(pool), size=len(u))] @ u
                gain = beta / 3 * trace((proposal - u) @ a).real
                accept = np.log(rng.random(len(u))) < gain
                u = np.where(accept[:, None, None], proposal, u)
                taken.append(accept.mean())
            links[mask, mu] = u
    return links, float(np.mean(taken))


def metropolis_means(dims, beta, *, sweeps, warmup, seed, c1=TREE_LEVEL):
    """Plaquette and rectangle after each sweep of a chain, shape (sweeps, 2)."""
    rng = np.random.default_rng(seed)
    links = random_links(rng, dims, roughness=0.3)
    volume, rows = np.prod(dims), []
    for n in range(warmup + sweeps):
        links, _ = metropolis(links, beta, rng, c1=c1)
        if n >= warmup:
            rows.append((sum(plaquette_sums(links)) / (6 * volume), rectangle_sum(links) / (12 * volume)))
    return np.array(rows)
