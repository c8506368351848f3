"""Journals of campaigns that were never run: records with series of a model whose peak is known exactly."""

import numpy as np
from msgspec.structs import replace

from metalforge.campaign.spec import Budget, CampaignSpec
from metalforge.campaign.store.records import (
    EMULATED_NPU,
    Assigned,
    BlockDone,
    Checked,
    Decided,
    Energy,
    Estimated,
    Finished,
    Interrupted,
    Opened,
    Rows,
    Sampled,
    Silicon,
    StageNode,
    StageSample,
    Topology,
)
from metalforge.core.quantities import Measured, Modelled
from metalforge.lattice.campaign import Lattice
from reference.landau_chain import VOLUME, run_chains

BEGAN = 1_790_000_000.0
BETAS = (5.65, 5.67, 5.69, 5.71, 5.73)
WARMUP = 40


def opened(spec, *, command=("metalforge", "scan", "--preset", "demo")):
    """Return the first record."""
    silicon = (
        Silicon(name="cpu:0", device="cpu:0", model="a processor", role="produces"),
        Silicon(name="cpu:1", device="cpu:0", model="a processor", role="produces"),
    )
    return Opened(
        at=BEGAN,
        spec=spec,
        spec_sha256=spec.sha256,
        package_version="0.0.0",
        isa="v3",
        command=command,
        ordering=spec.ordering,
        silicon=silicon,
        python="3.11.0",
        versions={"numpy": "2.0"},
    )


def spec_of(*, volumes=(VOLUME,), name="model", algorithm="heatbath", flavors=0, **budget):
    """Return a spec for the model's range."""
    sea = {"flavors": flavors, "mass": 0.1 if flavors else 0.0}
    lattice = Lattice(volumes=volumes, beta_min=5.6, beta_max=5.8, algorithm=algorithm, **sea)
    return CampaignSpec(name=name, seed=11, theory=lattice, budget=Budget(**(budget or {"seconds": 100.0})))


def records_of(spec, *, betas=BETAS, rows=2000, seed=5, warmup=WARMUP, relaxing=4.0, head=False):
    """Return the records of a campaign that visits each beta once, one second a block, two blocks a visit.

    Every volume has the model's E and |L|, so that all peaks are at the same beta and as high as N_s^3. The first
    `warmup` updates approach equilibrium as exp(-t / relaxing). HMC rows accept nine of ten.
    """
    rng = np.random.default_rng(seed)
    records = [opened(spec)]
    if head:
        records.append(
            Decided(at=BEGAN, what="head", by="quenched_length", reason="skill +0.61", value=0.61, trusted=True)
        )
        records.append(Decided(at=BEGAN, what="head", by="cg_estimate", reason="does not apply", trusted=False))
        length = Decided(
            at=BEGAN, what="cheap-length", by="head:quenched_length", head="quenched_length", trusted=True,
            reason="read off an earlier chain", value=12.0, baseline=20.0, done="12 updates",
        )  # fmt: skip
        records += [length] * len(betas)
    now = BEGAN
    visit = 0
    for dims in spec.theory.volumes:
        sites = dims[0] * dims[1] * dims[2] * dims[3]
        plaquettes, loops = run_chains(betas, rows + WARMUP, rng)
        plaquettes = 1 - (1 - plaquettes) * 2048 / sites
        approach = np.exp(-np.arange(rows + WARMUP) / relaxing)
        for i, beta in enumerate(betas):
            chain = f"c{visit:04d}"
            columns = {
                "plaquette": plaquettes[:, i] + 0.3 * approach,
                "polyakov_re": loops[:, i] * np.cos(0.3),
                "polyakov_im": loops[:, i] * np.sin(0.3),
            }
            if spec.theory.algorithm == "hmc":
                columns["accepted"] = (rng.uniform(size=rows + WARMUP) < 0.9).astype(float)
                columns["delta_h"] = 0.05 + np.sqrt(0.1) * rng.normal(size=rows + WARMUP)
            if spec.theory.flavors:
                columns["cg_iterations"] = 200 + 10 * rng.normal(size=rows + WARMUP)
            records.append(
                Assigned(
                    at=now,
                    visit=visit,
                    round=0,
                    chain=chain,
                    stream=visit,
                    system=dims,
                    coordinate=beta,
                    updates=rows,
                    fresh=True,
                    substrate=f"cpu:{visit % 2}",
                    by="gaussian-process",
                    reason="a first look <spread> evenly\nhint: none",
                )
            )
            records.append(
                Decided(
                    at=now + 0.5,
                    what="warmup-ends",
                    chain=chain,
                    step=warmup,
                    by="rule:MSER",
                    reason=f"MSER cuts at 9 of {warmup} updates",
                    baseline=1.0,
                )
            )
            middle = warmup + rows // 2
            parts = [("warmup", 0, warmup), ("measure", warmup, middle), ("measure", middle, rows + WARMUP)]
            for phase, first, end in parts:
                cut = {name: tuple(map(float, column[first:end])) for name, column in columns.items()}
                records.append(Rows(at=now + 1, chain=chain, phase=phase, first=first, columns=cut, seconds=0.5))
                if phase == "measure":
                    now += 1
                    records.append(
                        BlockDone(
                            at=now,
                            visit=visit,
                            chain=chain,
                            step=end,
                            digest="",
                            done=end > middle,
                            substrate=f"cpu:{visit % 2}",
                        )
                    )
            visit += 1
            done = visit * (rows + WARMUP)
            records.append(
                Estimated(
                    at=now,
                    system=dims,
                    trajectories=done,
                    result=None if i == 0 else 5.69,
                    error=None if i == 0 else 0.3 * done**-0.5,
                    height=None if i == 0 else 1.3,
                    reason="one beta only" if i == 0 else "",
                )
            )
    return records


def ending(records, *, stopped_by="seconds"):
    """Return the records that a campaign which ends by itself leaves last."""
    now = records[-1].at
    stages = (
        StageSample(stage="produce", items=10, busy_s=9.3, waited_get_s=0.2, waited_put_s=0.0, queue=0),
        StageSample(stage="journal", items=10, busy_s=0.1, waited_get_s=9.0, waited_put_s=0.0, queue=0),
    )
    nodes = StageNode(name="produce", substrate="cpu:0"), StageNode(name="journal", substrate="host")
    joules = Measured(value=120.0, unit="J", how="a meter")
    modelled = Modelled(value=0.5, unit="J", profile="akd1000-published")
    rows = sum(len(r.columns["plaquette"]) for r in records if isinstance(r, Rows))
    check = {
        "substrate": "cpu:1",
        "precision": "f64 against f80",
    }
    drifts = [{"action": -3e-16, "plaquette": 1e-16, "polyakov": loop} for loop in (2e-17, -7e-17)]
    steps = [r.step for r in records if isinstance(r, BlockDone) and r.chain == "c0000"]
    promised = [replace(r, promised="last") if isinstance(r, BlockDone) and r.chain == "c0000" else r for r in records]
    return [
        *promised,
        *(Checked(at=now, chain="c0000", step=s, drift=d, **check) for s, d in zip(steps, drifts, strict=True)),
        Topology(at=now, ordering="C", stages=nodes, edges=()),
        Sampled(at=now, window_s=10.0, stages=stages),
        Energy(at=now, substrate="cpu:0", source="measured", energy=joules),
        Energy(at=now, substrate=EMULATED_NPU, source="modelled", energy=modelled),
        Energy(at=now, substrate="host", source="emulation", emulation_s=1.25),
        Finished(at=now, stopped_by=stopped_by, trajectories=rows, seconds=now - BEGAN),
    ]


def interrupted(records):
    """Return the records of a campaign that was asked to stop."""
    rows = sum(len(r.columns["plaquette"]) for r in records if isinstance(r, Rows))
    now = records[-1].at + 1
    return [*records, Interrupted(at=now, reason="SIGTERM", trajectories=rows, seconds=now - BEGAN)]
