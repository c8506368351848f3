"""Four flavours by exact HMC, and as two fields of two by RHMC: the same physics. Then a pion and a watched energy."""

import sys

import numpy as np

from metalforge.lattice import Chain, ChainSpec, EnergyProbe, FermionSpec, pion_correlator, warm_up
from metalforge.statistics import gamma_method

quick = "--quick" in sys.argv
warmup, n = (12, 30) if quick else (60, 400)

for algorithm, flavors in (("hmc", (4,)), ("rhmc", (2, 2))):
    fermions = FermionSpec(flavors=flavors, masses=(0.3,) * len(flavors))
    chain = Chain(ChainSpec(dims=(4, 4, 4, 4), beta=5.6, algorithm=algorithm, fermions=fermions, seed=7))
    warm_up(chain, warmup, quenched=10)  # without fermions, then with them while the step size is tuned
    rows = []
    chain.run(n, lambda info, seen, rows=rows: rows.append((seen.plaquette, seen.condensate, info.cg_iterations)))
    plaquette, condensate, iterations = np.array(rows).T
    print(f"{algorithm:4} plaquette {gamma_method(plaquette)}")
    print(f"     condensate {gamma_method(condensate)}; {iterations.mean():.0f} CG iterations per trajectory")

chain.update(probe=EnergyProbe((0.25, 0.5, 0.75, 1.0), lambda e: print(f"{e.fraction:.2f}: dH = {e.delta_h:+.4f}")))
print("pion", pion_correlator(chain.sea.inverter, 0.3).round(4).tolist())
