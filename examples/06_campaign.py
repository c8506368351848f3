"""A steered scan for the deconfinement transition, killed in the middle and resumed: the same numbers, bit for bit."""

import sys
import tempfile
from pathlib import Path

from metalforge import campaign
from metalforge.lattice.campaign import Lattice

quick = "--quick" in sys.argv
spec = campaign.CampaignSpec(
    name="nt2",
    seed=1,
    theory=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
    budget=campaign.Budget(trajectories=1500 if quick else 20_000),
    warmup=campaign.WarmUpPolicy(longest=60, shortest=20),
    steering=campaign.Steering(visit=100 if quick else 400),
    running=campaign.Running(block=50, deterministic=True),
)
with tempfile.TemporaryDirectory() as folder:
    whole = campaign.run(spec, Path(folder) / "whole")
    with campaign.Campaign.open(spec, Path(folder) / "parts") as running:
        running.interrupt("to show that it goes on")
        running.run()
    resumed = campaign.resume(Path(folder) / "parts")
same = whole.state.digest() == resumed.state.digest()
print(f"{whole.state.trajectories} updates on {len(whole.rows)} chains; interrupted and resumed, the same bits: {same}")
for visit in whole.state.visits[-3:]:
    print(f"beta {visit.coordinate:.3f}: {visit.reason}")
print(whole.reason if whole.value is None else f"beta_c = {whole.value:.4f} +- {whole.error:.4f}")
