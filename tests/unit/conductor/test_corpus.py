"""Chains of the corpus: what is recorded, faults that leave traces, and a file that cannot lie."""

import msgspec
import numpy as np
import pytest

from metalforge.conductor.chains import Corpus, load_corpus, save_corpus
from metalforge.conductor.corpus import build_corpus, run_chains
from metalforge.conductor.corpus_spec import CorpusGrid, CorpusSpec, chain_entries
from metalforge.core.errors import SpecError

SPEC = CorpusSpec(
    grids=(
        CorpusGrid(
            dims=(4, 4, 4, 2), train=(4.7, 5.5), test=(5.0,), far=(4.5, 5.8), steps=((1.0, 5),), trajectories=30
        ),
    ),
    reference=40,
    untested=4,
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return build_corpus(SPEC)


def test_every_coupling_has_both_starts_every_fault_and_a_long_run(corpus: Corpus) -> None:
    for beta in (4.7, 5.5, 5.0):
        entries = [c.entry for c in corpus.chains if c.entry.beta == beta]
        assert {e.start for e in entries if e.fault is None} == {"hot", "cold"}
        assert {e.fault for e in entries} == {None, "bad_links", "wrong_step"}
        assert corpus.reference(entries[0].place).series.shape == (2, 40, 3)
    assert len({c.entry.stream for c in corpus.chains}) == len(corpus.chains)
    assert {c.entry.beta for c in corpus.part("test")} == {5.0}


def test_a_row_is_what_was_known_before_its_metropolis_test(corpus: Corpus) -> None:
    # A rejected trajectory leaves the plaquette as it is: in the next row, never in its own.
    for chain in (c for c in corpus.chains if c.entry.fault is None):
        plaquette, accepted = chain.column("plaquette_spatial"), chain.column("accepted")
        assert np.isnan(accepted[:4]).all()
        assert np.isfinite(accepted[4:]).all()
        # The links are mended to the group at the start of a trajectory, so equal means equal to rounding.
        stays = np.abs(np.diff(plaquette)) < 1e-12
        assert np.array_equal(stays[4:], accepted[4:-1] == 0)
    assert any((c.column("accepted") == 0).any() for c in corpus.chains)


def test_chains_start_where_they_say(corpus: Corpus) -> None:
    for chain in corpus.chains:
        first = chain.column("plaquette_temporal")[0]
        assert first == pytest.approx(1.0) if chain.entry.start == "cold" else abs(first) < 0.1


def test_faults_leave_traces_while_they_last(corpus: Corpus) -> None:
    for chain in corpus.chains:
        faulty = chain.faulty
        assert faulty.sum() == chain.entry.fault_length
        if chain.entry.fault == "bad_links":
            at = chain.entry.fault_from
            plaquette = chain.column("plaquette_spatial")
            assert plaquette[at] < plaquette[at - 1] - 0.02
        if chain.entry.fault == "wrong_step":
            sound = chain.column("delta_h")[10 : chain.entry.fault_from]
            assert np.abs(chain.column("delta_h")[faulty]).mean() > 2 * np.abs(sound).mean()


def test_the_same_specification_gives_the_same_links(corpus: Corpus) -> None:
    again = build_corpus(msgspec.structs.replace(SPEC, reference=20))
    for one, two in zip(corpus.chains, again.chains, strict=True):
        np.testing.assert_array_equal(one.series, two.series)


def test_a_file_gives_back_the_corpus_and_refuses_a_changed_one(corpus: Corpus, tmp_path) -> None:
    import h5py

    path = tmp_path / "corpus.h5"
    save_corpus(corpus, path)
    read = load_corpus(path)
    assert read.spec_json == corpus.spec_json
    for one, two in zip(corpus.chains, read.chains, strict=True):
        assert one.entry == two.entry
        np.testing.assert_array_equal(one.series, two.series)
    with h5py.File(path, "r+") as file:
        file["chains/3"][5, 0] += 1e-9
    with pytest.raises(SpecError, match="sha256"):
        load_corpus(path)
    path.write_bytes(b"not a corpus")
    with pytest.raises(SpecError, match=r"corpus\.h5"):
        load_corpus(path)


def test_iterations_are_those_of_a_solve_and_rise_in_a_stall() -> None:
    grid = CorpusGrid(
        dims=(4, 4, 4, 2),
        train=(4.7,),
        test=(4.9,),
        far=(4.5, 5.6),
        steps=((0.5, 4),),
        trajectories=10,
        faults=("cg_stall",),
        mass=0.3,
        flavors=4,
    )
    spec = CorpusSpec(grids=(grid,), reference=6, untested=2, fault_length=3)
    stalled = next(c for c in run_chains(chain_entries(spec), spec) if c.entry.fault == "cg_stall")
    iterations = stalled.column("cg_iterations")
    assert iterations[stalled.faulty].min() > 1.3 * iterations[~stalled.faulty].max()
    assert 5 < iterations.min() < iterations.max() < 500
    # A solve to 1e-8 or 1e-6 in n iterations falls by about 7 / n decades each; slower while it stalls.
    rate = stalled.column("residual_rate")
    np.testing.assert_allclose(-rate * iterations, 7, atol=2.5)
    assert rate[stalled.faulty].min() > rate[~stalled.faulty].max()


def test_processes_change_no_link_and_leave_quietly(corpus: Corpus, capfd) -> None:
    chosen = [msgspec.structs.replace(chain.entry, trajectories=8) for chain in corpus.chains[:3]]
    for entry, made in zip(chosen, run_chains(chosen, SPEC, workers=2), strict=True):
        alone = next(run_chains([entry], SPEC))
        np.testing.assert_array_equal(made.series, alone.series)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("wrong", "match"),
    [({"test": (4.7,)}, "both"), ({"mass": 0.1}, "flavors"), ({"faults": ("cg_stall",)}, "solves nothing")],
)
def test_grids_that_make_no_sense_are_refused(wrong, match) -> None:
    given = {"dims": (4, 4, 4, 2), "train": (4.7,), "test": (5.0,), "far": (4.5, 5.8)} | wrong
    with pytest.raises(SpecError, match=match):
        CorpusGrid(**given)
