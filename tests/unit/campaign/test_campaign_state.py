"""The fold of a journal: what it accepts, what it refuses, and chains that move between substrates."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.orders import Brief
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import Assigned, Record, Rows
from metalforge.core.errors import SpecError
from reference.small_campaigns import QUICK, ROUNDS


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The records of a campaign that ran as fast as it could."""
    directory = tmp_path_factory.mktemp("quick") / "run"
    with Campaign.open(QUICK, directory) as campaign:
        campaign.run()
    return read_journal(directory / JOURNAL, Record).records


def test_decisions_come_before_what_they_decide(records):
    seen, ended = set(), set()
    for record in records:
        if isinstance(record, Assigned):
            seen.add(record.chain)
        elif isinstance(record, Rows):
            assert record.chain in seen
            assert record.phase != "measure" or record.chain in ended
        elif getattr(record, "what", "") == "warmup-ends":
            ended.add(record.chain)


def test_the_budget_is_kept(records):
    state = fold(records)
    assert state.finished.stopped_by == "trajectories"
    assert QUICK.budget.trajectories / 2 < state.trajectories <= QUICK.budget.trajectories


def test_rows_of_a_chain_do_not_depend_on_its_substrate_or_the_blocks(records, tmp_path):
    """The same chain alone, in one go: bit for bit what the campaign got in blocks, wherever it ran."""
    from metalforge.lattice.chain import Chain
    from metalforge.lattice.observables import measure

    state = fold(records)
    log = max(state.chains.values(), key=lambda chain: len(chain.visits))
    start = "hot" if log.stream % 2 == 0 else "cold"
    spec = QUICK.lattice.chain(log.dims, log.beta, seed=QUICK.seed, stream=log.stream, start=start)
    chain = Chain(spec, threads=1)
    plaquettes = []
    for _ in range(log.rows):
        chain.update()
        plaquettes.append(measure(chain.field).plaquette)
    assert plaquettes == log.columns["plaquette"]


def test_a_journal_without_its_beginning_is_refused(records):
    with pytest.raises(SpecError, match="opened"):
        fold(records[1:])


def test_a_spec_that_was_changed_in_the_journal_is_refused(records):
    forged = msgspec.structs.replace(records[0], spec=ROUNDS)
    with pytest.raises(SpecError, match="hash differs"):
        fold([forged, *records[1:]])


def test_a_gap_in_a_chain_is_refused(records):
    rows = [i for i, record in enumerate(records) if isinstance(record, Rows) and record.first == 0]
    with pytest.raises(SpecError, match="only 0"):
        fold([*records[: rows[0]], *records[rows[0] + 1 :]])


def test_rows_computed_again_must_be_the_same(records):
    rows = next(record for record in records if isinstance(record, Rows))
    state = fold(records)
    state.apply(rows)
    spoiled = {name: (values[0] + 1e-16, *values[1:]) for name, values in rows.columns.items()}
    spoiled["plaquette"] = (np.nextafter(rows.columns["plaquette"][0], 1.0).item(), *rows.columns["plaquette"][1:])
    with pytest.raises(SpecError, match=r"differs.*`plaquette`"):
        state.apply(msgspec.structs.replace(rows, columns=spoiled))


def test_what_a_chain_knows_is_what_the_journal_has(records):
    log = next(iter(fold(records).chains.values()))
    known = Brief.of(log)
    assert known.rows == log.rows
    assert known.warmup_ends == log.warmup
