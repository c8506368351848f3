"""Chains of a corpus: the same on cores and where many move at once, in files that cannot lie, in any process."""

import json
import re

import h5py
import msgspec
import numpy as np
import pytest

from experiments.heads import corpus as corpus_grids
from experiments.heads.corpus import Corpus, CorpusGrid, CorpusSpec, corpus_spec, record
from metalforge.conductor.features import SEEN
from metalforge.core.errors import MetalforgeError, SpecError
from reference.command_line import study
from reference.wide_engine import WideEngine, with_cards

SWEPT = CorpusGrid(dims=(4, 4, 4, 2), train=(4.9, 5.3), test=(5.1,), updates=20, seeds=1)
MOVED = CorpusGrid(
    dims=(4, 4, 4, 2), train=(4.9,), test=(5.1,), updates=12, seeds=1, algorithm="hmc", warmup=8, lengths=(0.5,)
)
SEA = CorpusGrid(
    dims=(4, 4, 4, 2), train=(4.7,), test=(4.9,), updates=5, seeds=1, algorithm="hmc", quenched=2, warmup=3, mass=0.3,
    flavors=4, lengths=(0.5,),
)  # fmt: skip


def make_corpus(grid, spec, *, part="all", engine=None):
    chains = record(list(spec.entries(part)), engine=engine)
    return Corpus(grid=grid, spec=msgspec.Raw(msgspec.json.encode(spec)), records=tuple(chains))


@pytest.fixture(scope="module")
def corpus():
    return make_corpus("own", CorpusSpec(grids=(SWEPT,)))


def test_every_coupling_has_both_starts_and_parts_share_no_random_numbers(corpus):
    entries = [chain.entry for chain in corpus.records]
    assert {(e.beta, e.start) for e in entries} == {(b, s) for b in (4.9, 5.1, 5.3) for s in ("hot", "cold")}
    assert {e.seed for e in entries if e.part == "train"} == {2026}
    assert {e.seed for e in entries if e.part == "test"} == {2027}
    assert len({e.stream for e in entries}) == len(entries)
    assert [c.entry for c in make_corpus("own", CorpusSpec(grids=(SWEPT,)), part="test").records] == [
        e for e in entries if e.part == "test"
    ]


def test_a_batch_gives_the_rows_of_single_chains(corpus):
    wide = WideEngine()
    again = make_corpus("own", CorpusSpec(grids=(SWEPT,)), engine=wide)
    assert wide.sizes  # they did move together
    assert again.sha256 == corpus.sha256
    for one, two in zip(corpus.records, again.records, strict=True):
        np.testing.assert_array_equal(one.series, two.series)


def test_rows_are_a_journals(corpus):
    for chain in corpus.records:
        assert tuple(chain.columns) == SEEN
        assert abs(chain.column("plaquette")[-5:].mean() - 0.4) < 0.15
        assert chain.loop.min() >= 0
    cold = next(c for c in corpus.records if c.entry.start == "cold")
    hot = next(c for c in corpus.records if c.entry.start == "hot")
    assert cold.column("plaquette")[0] > hot.column("plaquette")[0] + 0.1


def test_trajectories_have_the_steps_and_phases_of_a_campaign():
    found = list(record(list(CorpusSpec(grids=(MOVED, SEA)).entries("train")), workers=1))
    plain, sea = found[0], found[-1]
    assert set(plain.columns) == {*SEEN, "delta_h", "accepted", "delta_h_quarter", "n_steps"}
    assert plain.column("n_steps")[-1] != 10  # tuned in its warm-up
    assert np.isfinite(plain.column("delta_h_quarter")).all()
    assert np.isnan(sea.column("cg_iterations")[:2]).all()  # the quench solves nothing
    assert (sea.column("cg_iterations")[2:] > 5).all()


def test_faults_are_put_where_the_entry_says():
    grid = msgspec.structs.replace(SWEPT, updates=40, faults=("wrong_beta", "flip_exponent"), fault_length=8)
    entries = list(CorpusSpec(grids=(grid,)).entries("train"))
    assert [e.fault for e in entries] == ["wrong_beta", "flip_exponent"] * 2
    off, bit = list(record(entries, workers=1))[:2]
    sound = next(iter(record([msgspec.structs.replace(off.entry, fault="", fault_from=0, fault_length=0)])))
    begin = off.entry.fault_from
    np.testing.assert_array_equal(off.series[:, :begin], sound.series[:, :begin])
    assert (off.series[0, begin:] != sound.series[0, begin:]).all()
    assert 20 <= begin <= 40 - 8
    assert np.isfinite(bit.series[:, : bit.entry.fault_from]).all()


def test_a_file_gives_back_the_corpus_and_refuses_a_changed_one(corpus, tmp_path):
    path = tmp_path / "corpus.h5"
    corpus.save(path)
    read = Corpus.load(path)
    assert (read.grid, read.spec, read.sha256) == (corpus.grid, corpus.spec, corpus.sha256)
    for one, two in zip(corpus.records, read.records, strict=True):
        assert one.entry == two.entry
        np.testing.assert_array_equal(one.series, two.series)
    with h5py.File(path, "r+") as file:
        file["chains/3"][0, 5] += 1e-6
    with pytest.raises(SpecError, match="sha256"):
        Corpus.load(path)
    path.write_bytes(b"not a corpus")
    with pytest.raises(SpecError, match=r"corpus\.h5"):
        Corpus.load(path)


def test_a_folder_is_one_corpus_and_no_chain_counts_twice(corpus, tmp_path):
    other = make_corpus("other", CorpusSpec(grids=(msgspec.structs.replace(SWEPT, dims=(4, 4, 4, 4)),)), part="test")
    corpus.save(tmp_path / "a.h5")
    other.save(tmp_path / "b.h5")
    both = Corpus.load(tmp_path)
    assert len(both.records) == len(corpus.records) + len(other.records)
    assert {chain.entry.dims[3] for chain in both.records} == {2, 4}
    with pytest.raises(SpecError, match="share"):
        Corpus.joined([corpus, corpus])


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"test": (4.9,)}, "both"),
        ({"flavors": 4}, "mass"),
        ({"lengths": (0.5, 1.0)}, "hmc"),
        ({"warmup": 20}, "warmup"),
    ],
)
def test_a_grid_says_what_is_wrong_with_it(wrong, word):
    with pytest.raises(SpecError, match=word):
        msgspec.structs.replace(SWEPT, **wrong).__post_init__()


def test_shipped_grids_are_what_the_protocol_says():
    heatbath = corpus_spec("heatbath")
    assert len(heatbath.grids) == 9
    assert sum(1 for _ in heatbath.entries("train")) == 4 * (5 * 16 + 4 * 9)
    clusters = {e.place for e in heatbath.entries("test")}
    assert len(clusters) == 70
    assert not clusters & {e.place for e in heatbath.entries("train")}
    with pytest.raises(MetalforgeError, match="heatbath"):
        corpus_spec("absent")


def test_the_command_gives_the_same_checksums_in_two_processes_and_on_a_card(tmp_path, monkeypatch):
    monkeypatch.setitem(corpus_grids.GRIDS, "own", (msgspec.structs.replace(SWEPT, seeds=5),))
    line = ("heads", "corpus", "--grid", "own", "--part", "test", "--json", "--out")
    made = study(*line, "one", "--substrate", "cpu", "--workers", "1", cwd=tmp_path)
    first = json.loads(made.stdout)
    assert re.findall(r"^\[(\d+)/(\d+)\]", made.stderr, re.MULTILINE) == [("10", "10")]
    wide = WideEngine()
    with_cards(monkeypatch, wide)
    second = json.loads(study(*line, "two.h5", cwd=tmp_path).stdout)
    assert wide.sizes
    assert second["engine"] == "cuda:0"
    assert [f["sha256"] for f in first["files"]] == [f["sha256"] for f in second["files"]]
    assert Corpus.load(tmp_path / "one").records[0].entry.part == "test"
