"""Checkpoints elsewhere: the same rows from any place, whatever the place does, and nobody else's secrets."""

import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import tomllib

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from typer.testing import CliRunner

from metalforge import native
from metalforge.campaign.extending import Extension
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.point import PointChain
from metalforge.campaign.spec import Budget, Running, spec_from
from metalforge.campaign.store import chain_files as places
from metalforge.campaign.store.chain_files import ChainObjects, CheckpointStoreError, chain_files
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Decided, Rows
from metalforge.cli.main import app
from metalforge.cluster.worker import NodeWorker
from metalforge.core.errors import MetalforgeError, PluginError, SpecError
from reference.small_campaigns import ROUNDS, run_until

SMALL = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=400))


def kept_at(address, spec=SMALL, **running):
    return msgspec.structs.replace(spec, running=msgspec.structs.replace(spec.running, checkpoints=address, **running))


def records_of(directory, kind):
    return [one for one in read_journal(directory / JOURNAL) if isinstance(one, kind)]


def rows_of(directory):
    """Return every value of every update by chain and column, and how long each phase was."""
    found = {}
    for one in records_of(directory, Rows):
        for name, values in {"phase": (one.phase,) * len(one.columns["plaquette"]), **one.columns}.items():
            assert len(found.setdefault((one.chain, name), [])) >= one.first
            found[one.chain, name] += values
    return found


def run(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        assert campaign.run().finished is not None
    return rows_of(directory)


def resume(directory):
    with Campaign.resume(directory) as campaign:
        assert campaign.run().finished is not None
    return rows_of(directory)


def keep(files, data, chain="c0000", **options):
    files.save(chain, lambda path: path.write_bytes(data), **options)


def read(files, chain="c0000", **which):
    with files.reading(chain, **which) as path:
        return path.read_bytes() if path.exists() else None


def interrupted(spec, directory, updates=100):
    with Campaign.open(spec, directory) as campaign:
        assert run_until(campaign, updates).finished is None
    return campaign.files


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The rows of a campaign that keeps its checkpoints in its directory."""
    return run(SMALL, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture
def bucket(monkeypatch):
    """An object store as a dictionary, which answers to gs:// and fails as it is told."""

    class Bucket(MemoryFileSystem):
        protocol = ("gs",)
        cachable = False
        store, pseudo_dirs = {}, [""]
        fails, cuts, asked = {}, False, []

        @classmethod
        def _strip_protocol(cls, path):
            return "/" + path.removeprefix("gs://").strip("/")

        def _meet(self, verb):
            self.asked.append(verb)
            if self.fails.get(verb, 0) > 0:
                self.fails[verb] -= 1
                raise RuntimeError(f"no answer from https://me:hunter22@host/bucket?X-Signature=abcdef ({verb})")

        def put_file(self, lpath, rpath, **options):
            super().put_file(lpath, rpath, **options)
            if self.cuts:
                name = self._strip_protocol(rpath)
                self.pipe_file(name, self.cat_file(name)[:-100])
            self._meet("put")

        def get_file(self, rpath, lpath, **options):
            self._meet("get")
            super().get_file(rpath, lpath, **options)

        def cp_file(self, *paths, **options):
            self._meet("copy")
            super().cp_file(*paths, **options)

        def ls(self, path, **options):
            self._meet("list")
            return super().ls(path, **options)

        def rm_file(self, path):
            self._meet("remove")
            super().rm_file(path)

    monkeypatch.setitem(_registry, "gs", Bucket)
    return Bucket


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3//bucket/prefix", "s3://bucket/prefix"),
        ("/shared/chains", "hint: file:///shared/chains"),
        ("chains", "file:///shared/path"),
        ("file://shared/chains", "three slashes"),
        ("file:///", "absolute folder"),
        ("file:///shared/../etc", r"\.\."),
        ("s4://bucket", "did you mean `s3`"),
        ("simplecache::s3://bucket", "known: file, gs, memory, s3"),
        ("s3://", "must name a bucket"),
        ("s3:///prefix", "must name a bucket"),
        ("gs://bucket/*", "letters, digits"),
    ],
)
def test_an_address_that_is_none_is_refused(address, says):
    with pytest.raises(MetalforgeError, match=says):
        Running(checkpoints=address)


@pytest.mark.parametrize("address", ["s3://me:hunter22@host/x", "s3:me:hunter22@host", "gs://b/x?token=hunter22"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(address):
    with pytest.raises(SpecError, match="environment") as caught:
        Running(checkpoints=address)
    assert "hunter22" not in str(caught.value)


def test_an_option_of_the_command_line_takes_the_place_of_the_spec_s():
    printed = CliRunner().invoke(app, ["scan", "--preset", "tiny", "--checkpoints", "s3://bucket/x", "--print-spec"])
    assert tomllib.loads(printed.stdout)["running"]["checkpoints"] == "s3://bucket/x"
    refused = CliRunner().invoke(app, ["scan", "--preset", "tiny", "--checkpoints", "s3://me:hunter22@host/x"])
    assert isinstance(refused.exception, SpecError)


def test_memory_is_one_process_s_own():
    with pytest.raises(SpecError, match="isolation"):
        Running(checkpoints="memory://", isolation="process")


def test_the_field_is_printed_read_back_and_hashed():
    spec = kept_at("s3://bucket/prefix")
    table = tomllib.loads(spec_text(spec))["running"]
    assert table["checkpoints"] == "s3://bucket/prefix"
    assert spec_from(tomllib.loads(spec_text(spec))).sha256 == spec.sha256
    assert spec.sha256 != SMALL.sha256 == kept_at("").sha256


@pytest.mark.parametrize(("missing", "hint"), [("fsspec", r"metalforge\[ray\]'$"), ("gcsfs", "gcsfs$")])
def test_a_missing_package_is_named_before_a_campaign_begins(missing, hint, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PluginError, match=rf"(?s){missing}.*{hint}"):
        Campaign.open(kept_at("gs://bucket/prefix"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_place_that_refuses_is_said_before_a_campaign_begins(tmp_path, bucket, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "RuntimeError-like")
    bucket.fails = {"put": 99}
    with pytest.raises(CheckpointStoreError, match="gs://bucket") as caught:
        Campaign.open(kept_at("gs://bucket"), tmp_path / "run")
    assert "no answer from https://host/bucket" in str(caught.value)
    assert not re.search("hunter22|abcdef", str(caught.value))
    (tmp_path / "file").touch()
    with pytest.raises(MetalforgeError, match="file"):
        Campaign.open(kept_at(f"file://{tmp_path}/file"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_node_that_does_not_reach_the_place_has_no_lanes(tmp_path, bucket, monkeypatch):
    worker, level = NodeWorker(str(tmp_path)), native.level()
    monkeypatch.setenv("METALFORGE_ISA", level)  # which a worker sets in its process
    assert worker.lanes(kept_at("gs://bucket"), 1, level)
    bucket.fails = {"put": 99}
    with pytest.raises(CheckpointStoreError, match="gs://bucket"):
        worker.lanes(kept_at("gs://bucket"), 1, level)


def test_values_of_the_environment_are_not_for_messages(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    assert places.without_secrets("signature of wJalrXUtnFEMI does not match") == "signature of ... does not match"


@pytest.mark.parametrize("place", ["memory://", "gs://bucket/deep/er/", "file://{}/else where"])
def test_rows_are_the_same_from_every_place_and_go_on_there(place, plain, tmp_path, bucket, monkeypatch):
    directory, taken_up = tmp_path / "run", []
    files = interrupted(kept_at(place.format(tmp_path)), directory)
    assert not (directory / "chains").exists()
    load = PointChain._load

    def loading(self, path):
        found = load(self, path)
        taken_up.append(found is not None and found.log.end)
        return found

    monkeypatch.setattr(PointChain, "_load", loading)
    assert resume(directory) == plain
    assert any(taken_up)
    assert files.has("c0000")
    assert not list(tmp_path.rglob(".*.tmp"))


def test_two_campaigns_of_one_spec_share_a_place(plain, tmp_path, bucket):
    spec = kept_at("gs://bucket/prefix")
    with Campaign.open(spec, tmp_path / "one") as one, Campaign.open(spec, tmp_path / "two") as two:
        assert run_until(one, 100).finished is None
        assert two.run().finished is not None
        assert one.files != two.files
    assert resume(tmp_path / "one") == rows_of(tmp_path / "two") == plain
    assert len({key.split("/")[3] for key in bucket.store}) == 2


def test_what_is_kept_is_what_a_directory_keeps(tmp_path, bucket):
    """The same bytes, by whichever way; and they travel to another process."""
    for files in (
        chain_files(tmp_path),
        chain_files(tmp_path, f"file://{tmp_path}/x"),
        chain_files(tmp_path, "gs://b"),
    ):
        keep(files, b"links")
        keep(files, b"later", keep=True)
        other = pickle.loads(pickle.dumps(files))
        assert read(other) == b"later"
        assert read(other, before=True) == b"links"
        assert (files.has("c0000"), files.has("c0001")) == (True, False)
        assert read(files, "c0001") is None
        files.forget("c0000")
        files.forget("c0000")
        assert (files.has("c0000"), read(files, before=True)) == (False, None)


@pytest.mark.parametrize("harm", ["cut off", pytest.param("another chain", marks=pytest.mark.chaos)])
def test_a_bad_checkpoint_is_named_and_can_be_removed(harm, tmp_path, plain, bucket):
    directory = tmp_path / "run"
    interrupted(kept_at("gs://bucket"), directory)
    objects = sorted(key for key in bucket.store if key.endswith(".h5"))
    contents = [bucket().cat_file(key) for key in objects]
    for key, own, other in zip(objects, contents, contents[1:] + contents[:1], strict=True):
        bucket().pipe_file(key, own[:-100] if harm == "cut off" else other)
    named = r"gs://bucket/rounds-\w+/c\d+\.h5"
    with pytest.raises(MetalforgeError, match=rf"(?s){named}.*hint: remove {named}"):
        resume(directory)
    for key in objects:
        bucket().rm_file(key)
    assert resume(directory) == plain


@pytest.mark.parametrize("trouble", ["put", "copy", "cut"])
def test_an_upload_that_fails_leaves_the_checkpoint_before(trouble, tmp_path, bucket):
    files = chain_files(tmp_path, "gs://bucket/run")
    keep(files, b"before")
    bucket.fails, bucket.cuts = {trouble: 1}, trouble == "cut"
    with pytest.raises(CheckpointStoreError, match="gs://bucket/run"):
        keep(files, b"after" * 50)
    assert read(files) == b"before"
    bucket.cuts = False
    keep(files, b"after")
    assert read(files) == b"after"
    assert list(bucket.store) == ["/bucket/run/c0000.h5"]


def test_a_place_that_is_gone_costs_no_rows(tmp_path, plain, bucket):
    """Every upload fails from some moment on: the journal is told once by each producer, what was kept stays."""
    directory = tmp_path / "run"
    interrupted(kept_at("gs://bucket"), directory)
    before = {key: bucket().cat_file(key) for key in bucket.store}
    bucket.fails = {"put": 10**6}
    assert resume(directory) == plain
    said = [one for one in records_of(directory, Decided) if "cannot be written" in one.reason]
    assert {one.what for one in said} == {"lane"}
    assert len(said) == len({one.by for one in said}) >= 1
    assert not any(re.search("hunter22|abcdef", one.reason) for one in said)
    assert {key: bucket().cat_file(key) for key in bucket.store} == before


def test_a_place_that_cannot_be_read_ends_the_campaign_and_loses_nothing(tmp_path, plain, bucket):
    directory = tmp_path / "run"
    interrupted(kept_at("gs://bucket"), directory)
    before = len(records_of(directory, Rows))
    bucket.fails = {"get": 10**6}
    with pytest.raises(MetalforgeError, match=r"(?s)gs://bucket/rounds-\w+ cannot be read.*hint: .*metalforge resume"):
        resume(directory)
    assert len(records_of(directory, Rows)) >= before
    bucket.fails = {}
    assert resume(directory) == plain


def test_a_campaign_takes_its_checkpoints_to_another_place(tmp_path, plain, bucket):
    """From its directory to a store and, when that is gone for good, to a folder: the same rows."""
    directory = tmp_path / "run"
    interrupted(SMALL, directory, 100)
    with Campaign.resume(directory, more=Extension(checkpoints="gs://bucket")) as campaign:
        assert campaign.files.has("c0000")
        assert run_until(campaign, 200).finished is None
    stored = campaign.files
    bucket.fails = {"get": 10**6}
    with pytest.raises(MetalforgeError, match="cannot be"):
        resume(directory)
    with Campaign.resume(directory, more=Extension(checkpoints=f"file://{tmp_path}/x")) as campaign:
        assert not list((tmp_path / "x").rglob("*.h5"))
        assert [one.reason for one in campaign.state.decisions if one.what == "checkpoints"][-1].startswith(
            f"checkpoints at {stored.place} cannot be read"
        )
    assert resume(directory) == plain
    assert list((tmp_path / "x").rglob("*.h5"))


def test_a_place_that_cannot_be_used_leaves_a_campaign_where_it_was(tmp_path, bucket):
    interrupted(SMALL, tmp_path / "run", 100)
    bucket.fails = {"put": 10**6}
    with pytest.raises(CheckpointStoreError, match="gs://bucket"):
        Campaign.resume(tmp_path / "run", more=Extension(checkpoints="gs://bucket"))
    with Campaign.resume(tmp_path / "run") as campaign:
        assert campaign.state.checkpoints == campaign.spec.running.checkpoints == ""
        assert campaign.files.has("c0000")


def test_a_process_opens_a_store_that_another_one_wrote(tmp_path):
    """Objects over the files of this machine, in an interpreter of its own."""
    (tmp_path / "run").mkdir()
    files = ChainObjects(f"file://{tmp_path}/run")
    keep(files, b"links")
    code = (
        "import pickle, sys\nfiles = pickle.load(sys.stdin.buffer)\n"
        "with files.reading('c0000') as path:\n    files.save('c0001', path.rename)\n"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(files), check=True)
    assert read(files, "c0001") == b"links"


def test_what_a_killed_upload_left_is_swept(tmp_path, plain, bucket):
    files = interrupted(kept_at("gs://bucket"), tmp_path / "run")
    left = f"{files.place}/.{'0a' * 8}.tmp"
    bucket().pipe_file(left, b"half")
    with Campaign.resume(tmp_path / "run"):
        assert not bucket().exists(left)


@pytest.mark.chaos
def test_checkpoints_of_checked_chains_are_kept_in_any_place(tmp_path, bucket):
    """Every configuration is checked: the rows of a directory, and few questions to the store."""
    checked = msgspec.structs.replace(SMALL, ordering="D", budget=Budget(trajectories=150))
    rows = run(checked, tmp_path / "plain")
    files = interrupted(kept_at("gs://bucket", checked), tmp_path / "run", 60)
    assert resume(tmp_path / "run") == rows
    assert files.has("c0000")


@pytest.mark.chaos
def test_a_killed_campaign_goes_on_from_another_folder(tmp_path, plain):
    """Through the command line, with processes: kill -9 of all of them, and on in a new process."""
    spec, directory, elsewhere = tmp_path / "spec.toml", tmp_path / "run", tmp_path / "elsewhere"
    spec.write_text(spec_text(kept_at("", isolation="process")))
    command = [sys.executable, "-m", "metalforge", "scan", str(spec), "--out", str(directory)]
    command += ["--checkpoints", f"file://{elsewhere}"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        # The first visits are over when the next ones are said, and have checkpoints.
        visits = (line for line in process.stderr if "visit" in line)
        assert len(list(itertools.islice(visits, 3))) == 3
        os.killpg(process.pid, signal.SIGKILL)
    assert list(elsewhere.glob("*/*.h5"))
    assert process.returncode == -signal.SIGKILL
    assert not (directory / "chains").exists()
    found = subprocess.run([*command[:3], "resume", str(directory)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert rows_of(directory) == plain
