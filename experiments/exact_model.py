r"""A model with an exactly known susceptibility peak, and Markov chains of it with the memory of lattice chains.

    p_beta(O, E) ~ O exp(-(C - beta A) O^2 - D O^4 - F O^6) N(E; E0 - A O^2 - (beta - beta_0) S^2, S^2),

with C = A beta_0, which is exp(-beta E) times a density that does not know beta, so that reweighting in beta is exact.
O stands for |L|: a random walk with an accept test moves it (tau_int of tens of steps), an autoregression the Gaussian
part of E. With D > 0 there is one phase (`CROSSOVER`, tau_int about 24); with D < 0 and F > 0 there are two with a
barrier between (`FIRST_ORDER`), through which chains go once in some hundred steps.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
DIMS = (8, 8, 8, 4)
SPATIAL, PLAQUETTES = 512, 6 * 2048
MEMORY = 5.0
"""Steps in which the Gaussian part of E forgets."""
STARTS = {"hot": 0.02, "cold": 0.35}


class ExactModel(NamedTuple):
    """The constants of a model, and the step of its chains; `low` .. `high` is where its peak is looked for."""

    name: str
    a: float = 4500.0
    d: float = 2500.0
    f: float = 0.0
    s: float = 55.0
    beta_0: float = 5.672
    e_0: float = 5600.0
    step: float = 0.014
    low: float = 5.6
    high: float = 5.8

    def log_density(self, loop: Floats, beta: ArrayLike) -> Floats:
        """Return ln p_beta(O) up to a constant."""
        square = loop * loop
        quadratic = self.a * (self.beta_0 - np.asarray(beta))
        return np.asarray(np.log(loop) - square * (quadratic + square * (self.d + self.f * square)))

    def chi(self, betas: ArrayLike) -> Floats:
        """Return N_s^3 var(O) at each beta, by quadrature."""
        grid = np.linspace(1e-6, 0.6, 4001)
        weight = self.log_density(grid[:, None], np.atleast_1d(betas)[None, :])
        weight = np.exp(weight - weight.max(axis=0))
        weight /= weight.sum(axis=0)
        mean = grid @ weight
        return np.asarray(SPATIAL * (grid**2 @ weight - mean**2), dtype=np.float64)

    def peak(self) -> tuple[float, float]:
        """Return beta_c and the height of the peak."""
        low, high = self.low, self.high
        for _ in range(3):
            betas = np.linspace(low, high, 401)
            chi = self.chi(betas)
            top = int(chi.argmax())
            low, high = betas[max(top - 2, 0)], betas[min(top + 2, 400)]
        return float(betas[top]), float(chi[top])

    def half_width(self) -> float:
        """Return half of the peak's width at half of its height."""
        betas = np.linspace(self.low, self.high, 4001)
        high = betas[self.chi(betas) > self.peak()[1] / 2]
        return float(high[-1] - high[0]) / 2


CROSSOVER = ExactModel("exact, one phase")
"""Like 8^3 x 4."""
FIRST_ORDER = ExactModel("exact, two phases", a=1780.0, d=-2500.0, f=10000.0, s=35.0, step=0.03, low=5.47, high=5.67)
"""Like 8^3 x 2: phases 212 apart in E, as E of that lattice depends on |L|, and a crossing in 200 steps."""

RARE = ExactModel("exact, rare crossings", a=3560.0, d=-5000.0, f=20000.0, s=49.5, step=0.03, low=5.52, high=5.62)
"""The same in twice the volume: a valley of one in eighty, and a crossing in 1,500 steps."""

LARGE = ExactModel("exact, large volume", a=4450.0, d=-6250.0, f=25000.0, s=55.3, step=0.03, low=5.52, high=5.62)
"""In two and a half times the volume, like 12^3 x 2: a crossing in 5,000 steps."""

STUCK = ExactModel("exact, stuck", a=12460.0, d=-17500.0, f=70000.0, s=92.6, step=0.03, low=5.57, high=5.6)
"""In seven times the volume: no chain crosses."""


MODELS = {"crossover": CROSSOVER, "first order": FIRST_ORDER, "rare": RARE, "large": LARGE, "stuck": STUCK}
"""By the name that cases have for them."""


class ExactRows(NamedTuple):
    """What chains gave, each of shape (rows, chains)."""

    plaquette: Floats
    loop: Floats


class ExactChains:
    """Chains of a model that are moved together: (plaquette, loop) of each, row by row.

    `betas`, `loop` and `noise` hold where each is now: its beta, O, and the Gaussian part of E in units of S.
    """

    def __init__(self, model: ExactModel, rng: np.random.Generator) -> None:
        self.model, self._rng = model, rng
        self.betas = self.loop = self.noise = np.empty(0)

    def add(self, beta: float, start: str) -> int:
        """Return the number of a new chain."""
        self.betas = np.append(self.betas, beta)
        self.loop = np.append(self.loop, STARTS[start])
        self.noise = np.append(self.noise, self._rng.normal())
        return len(self.betas) - 1

    def advance(self, chains: ArrayLike, rows: int) -> ExactRows:
        """Move these chains by so many rows."""
        which = np.asarray(chains, dtype=np.int64)
        model, rng, betas = self.model, self._rng, self.betas[which]
        loop, noise = self.loop[which], self.noise[which]
        kick = float(np.exp(-1 / MEMORY))
        loops = np.empty((rows, which.size))
        noises = np.empty_like(loops)
        for t in range(rows):
            proposal = np.abs(loop + model.step * rng.normal(size=which.size))
            now, then = model.log_density(loop, betas), model.log_density(proposal, betas)
            accept = np.log(rng.uniform(size=which.size)) < then - now
            loop = np.where(accept, proposal, loop)
            noise = kick * noise + np.sqrt(1 - kick**2) * rng.normal(size=which.size)
            loops[t], noises[t] = loop, noise
        self.loop[which], self.noise[which] = loop, noise
        return ExactRows(1 - self._energy(betas, loops, noises) / PLAQUETTES, loops)

    def _energy(self, betas: Floats, loop: Floats, noise: Floats) -> Floats:
        model = self.model
        return np.asarray(model.e_0 - model.a * loop**2 - (betas - model.beta_0) * model.s**2 + model.s * noise)
