"""A steered scan for the deconfinement transition, killed in the middle and resumed: the same numbers, bit for bit."""

import sys
import tempfile
from pathlib import Path

from metalforge.campaign.report.result import result_of
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Lattice, Running, Steering, WarmUpPolicy

quick = "--quick" in sys.argv
spec = CampaignSpec(
    name="nt2",
    seed=1,
    lattice=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
    budget=Budget(trajectories=1500 if quick else 20_000),
    warmup=WarmUpPolicy(longest=60, shortest=20),
    steering=Steering(visit=100 if quick else 400),
    running=Running(block=50, deterministic=True),
)
with tempfile.TemporaryDirectory() as folder:
    with Campaign.open(spec, Path(folder) / "whole") as campaign:
        whole = campaign.run()
    with Campaign.open(spec, Path(folder) / "parts") as campaign:
        campaign.interrupt("to show that it goes on")
        campaign.run()
    with Campaign.resume(Path(folder) / "parts") as campaign:
        resumed = campaign.run()
    same = whole.digest() == resumed.digest()
    print(f"{whole.trajectories} updates on {len(whole.chains)} chains; interrupted and resumed, the same bits: {same}")
    for visit in whole.visits[-3:]:
        print(f"beta {visit.beta:.3f}: {visit.reason}")
    found = result_of(whole).headline
    located = found.transition
    print(found.reason if located is None else f"beta_c = {located.beta_c:.4f} +- {located.error:.4f}")
