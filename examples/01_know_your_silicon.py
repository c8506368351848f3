"""What this machine has, where three workloads would go, and a random number that is the same everywhere."""

from metalforge.native import Stream
from metalforge.substrates import discover, route, workload

found = discover()
for substrate in found.substrates:
    print(f"{substrate.info.kind:4} {substrate.info.name}: {substrate.info.model}")

for name in ("lattice_cg", "cpu_validation", "esn_npu_inference"):
    decision = route(workload(name), found.substrates)
    print(f"{name} -> {decision.substrate.name}: {decision.reason}; {decision.cost.latency}")

draws = Stream(seed=2026).normal(step=0, sites=3, draws=2)
print("normals of seed 2026:", draws.round(6).tolist())
