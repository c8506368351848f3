"""One run of a chain: its phases, its rows, and that it continues from a checkpoint and from what was written down."""

import subprocess
import sys
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.rows import ChainFaultError, IrreproducibleError
from metalforge.lattice import Chain, ChainBatch, ChainSpec, HmcSpec, measure
from metalforge.lattice.observables import standard
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp

HMC = ChainSpec(dims=(4, 4, 2, 2), beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(n_steps=4))
SWEEPS = ChainSpec(dims=(4, 4, 2, 2), beta=5.6, seed=3)
COLUMNS = standard(trajectories=True, sea=False)


def run_of(spec=HMC, columns=COLUMNS, **options):
    return ChainRun(Chain(spec), WarmUp(total=9), columns, **options)


def test_an_update_is_a_row_of_its_phase():
    run = run_of()
    rows = [run.step() for _ in range(12)]
    assert [row.update for row in rows] == list(range(12))
    assert [row.phase for row in rows] == ["warmup"] * 9 + ["measure"] * 3
    assert rows[-1].values["plaquette"] == measure(run.chain.field).plaquette
    assert set(rows[-1].values) == set(COLUMNS)
    assert run.measured == 3
    assert [(s.phase, s.first, len(s.columns["plaquette"])) for s in run.log.segments(5)] == [
        ("warmup", 5, 4),
        ("measure", 9, 3),
    ]


@pytest.mark.parametrize("stop", [2, 9, 11])
def test_a_checkpoint_continues_bit_for_bit_with_its_rows(tmp_path, stop):
    whole, part = run_of(), run_of()
    for _ in range(14):
        whole.step()
    for _ in range(stop):
        part.step()
    part.save(tmp_path / "run.h5", first=min(2, stop))
    again = ChainRun.load(tmp_path / "run.h5")
    while again.log.end < 14:
        again.step()
    assert again.log.first == 2
    assert again.log.phases == whole.log.phases[2:]
    assert again.log.columns == {name: column[2:] for name, column in whole.log.columns.items()}
    assert np.array_equal(again.chain.field.to_links(), whole.chain.field.to_links())


def test_rows_computed_again_are_held_against_what_was_written_down():
    one, two = run_of(), run_of()
    for run in (one, two):
        for _ in range(5):
            run.step()
    written = SimpleNamespace(phases=list(one.log.phases), columns={n: list(c) for n, c in one.log.columns.items()})
    for update in range(5):
        two.verify(update, written)
    written.columns["polyakov_re"][3] = np.nextafter(written.columns["polyakov_re"][3], 1)
    with pytest.raises(IrreproducibleError, match="polyakov_re"):
        two.verify(3, written)
    written.phases[2] = "measure"
    with pytest.raises(IrreproducibleError, match="measure"):
        two.verify(2, written)


def test_an_early_end_of_a_warm_up_freezes():
    run = ChainRun(Chain(HMC), WarmUp(total=12), ("plaquette",))
    rows = [run.step() for _ in range(5)]
    assert run.warmup.first_tested == 4
    assert [row.phase for row in rows] == ["warmup"] * 5
    run.end_warmup()
    assert run.step().phase == "measure"
    assert run.measured == 1


def test_observables_that_are_not_numbers_are_a_fault(monkeypatch):
    run = run_of(SWEEPS, ("plaquette",))
    monkeypatch.setattr(type(run.chain.field), "plaquette_sums", lambda self: (float("nan"), 1.0))
    with pytest.raises(ChainFaultError, match=r"beta 5\.6"):
        run.step()
    assert run.log.end == 0


def test_a_checkpoint_with_a_short_series_is_refused(tmp_path):
    run = run_of()
    for _ in range(3):
        run.step()
    run.log.columns["plaquette"].pop()
    run.save(tmp_path / "short.h5")
    with pytest.raises(SpecError, match="rows"):
        ChainRun.load(tmp_path / "short.h5")


LOADERS = """
import os, sys, threading
from pathlib import Path
from metalforge.lattice.run import ChainRun

for _ in range(10):
    process = os.fork()
    if process == 0:
        sys.setswitchinterval(1e-6)
        gate = threading.Barrier(4)
        threads = [threading.Thread(target=lambda: (gate.wait(), ChainRun.load(Path(sys.argv[1])))) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


def test_the_first_checkpoints_of_a_process_are_loaded_by_several_threads_at_once(tmp_path):
    """What is known of a record's type is made at its first use: two threads that made it crashed the process."""
    run = run_of()
    run.step()
    run.save(tmp_path / "chain.h5")
    command = [sys.executable, "-c", LOADERS, str(tmp_path / "chain.h5")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout.split() == ["0"] * 10


@pytest.mark.parametrize("spec", [SWEEPS, HMC])
def test_columns_of_a_batch_are_what_its_chains_do(spec):
    chains = [Chain(msgspec.structs.replace(spec, stream=n)) for n in range(3)]
    one, other = ChainBatch(chains), ChainBatch([Chain(chain.spec) for chain in chains])
    one.start(4)
    found = one.collect()
    assert found == other.run(4)
    for chain, columns in zip(chains, found, strict=True):
        assert columns["plaquette"][-1] == chain.measure().plaquette
        assert ("delta_h" in columns) is (spec is HMC)


def test_what_was_started_is_collected_once_and_whole():
    """On an engine without batches, as on one that has them."""
    batch = ChainBatch([Chain(ChainSpec(dims=(4, 4, 4, 2), beta=5.1, seed=3))])
    assert batch.run(0) == [{}]
    batch.start(1)
    batch.start(2)
    (columns,) = batch.collect()
    assert len(columns["plaquette"]) == 3
    assert batch.chains[0].step == 3
    assert columns["plaquette"][-1] == measure(batch.chains[0].field).plaquette
    assert batch.collect() == [{}]
