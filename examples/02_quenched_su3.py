"""A quenched SU(3) chain by heat bath and by HMC: the same plaquette, with honest errors; then the gradient flow."""

import sys

import numpy as np

from metalforge.lattice import Chain, ChainSpec, gradient_flow, warm_up
from metalforge.statistics import gamma_method

quick = "--quick" in sys.argv
n = 100 if quick else 1000

for algorithm in ("heatbath", "hmc"):
    chain = Chain(ChainSpec(dims=(4, 4, 4, 4), beta=5.7, algorithm=algorithm, seed=7))
    warm_up(chain, 90)
    plaquettes = []
    chain.run(n, lambda info, observed, series=plaquettes: series.append(observed.plaquette))
    print(f"{algorithm:9} plaquette {gamma_method(np.array(plaquettes))}")

for point in gradient_flow(chain.field, 0.2 if quick else 1.0, measure_every=0.1):
    print(f"t = {point.t:.1f}  t^2 E = {point.t2_energy:.4f}  Q = {point.charge:+.3f}")
