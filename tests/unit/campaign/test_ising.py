"""`examples/ising.py`: a theory in one file has everything that a campaign of the built-in ones has."""

import csv
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metalforge.campaign import theory
from metalforge.campaign.results import load
from metalforge.campaign.theory import Place, find_theory
from metalforge.core import plugins
from metalforge.core.errors import PluginError, UnknownNameError
from metalforge.dashboard.following import Followed
from metalforge.dashboard.payloads import chain_sent, encoded, state_sent, transition_sent
from metalforge.statistics import gamma_method

EXAMPLES = Path(__file__).parents[3] / "examples"
FOREIGN = re.compile(r"beta_c|lattice|plaquette|polyakov|particle|quark|plasma|SU\(3\)", re.IGNORECASE)
OF_TRAJECTORIES = re.compile(r"hmc|cg_iterations|acceptance|deconfinement|quenched", re.IGNORECASE)
"""Words of updates and heads that the Ising model does not have."""
T_C = 2 / math.log(1 + math.sqrt(2))
"""Of the infinite system (L. Onsager, 1944)."""
PICTURES = re.compile(r"data:[a-z/+]+;base64,[A-Za-z0-9+/=]+")


@pytest.fixture
def ising(monkeypatch):
    """The theory, known to this process while a test runs."""
    monkeypatch.setenv(plugins.FILES, "")
    plugins.load_files([EXAMPLES / "ising.py"])
    yield find_theory("ising")
    del sys.modules[f"{plugins._PREFIX}ising"]
    del theory._KINDS["ising"]


def command(*arguments, **options):
    said = {"capture_output": True, "text": True, "check": False} | options
    return subprocess.run([sys.executable, "-m", "metalforge", *map(str, arguments)], **said)


def scan(folder, updates=1500):
    return "scan", EXAMPLES / "ising.toml", "--trajectories", updates, "--out", folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A campaign of seconds, and what it printed."""
    folder = tmp_path_factory.mktemp("ising") / "run"
    done = command(*scan(folder))
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A campaign that is long enough for both systems, and its result as JSON."""
    folder = tmp_path_factory.mktemp("longer") / "run"
    done = command(*scan(folder, 12_000), "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def exact(size, k):
    """Return <E> and <|m|> on a small torus by all its configurations."""
    spins = np.array(list(itertools.product((-1, 1), repeat=size * size))).reshape(-1, size, size)
    energy = -sum((spins * np.roll(spins, -1, axis)).sum(axis=(1, 2)) for axis in (1, 2))
    weight = np.exp(-k * (energy - energy.min()))
    return [float(np.average(x, weights=weight)) for x in (energy, np.abs(spins.mean(axis=(1, 2))))]


@pytest.mark.parametrize("start", ["hot", "cold"])
@pytest.mark.parametrize("k", [0.2, 0.44])
def test_updates_sample_the_exact_distribution(ising, k, start):
    model, place, numbers = ising(sizes=((3, 3),)), Place((3, 3), k, start), np.random.default_rng(5)
    arrays = model.begin(place, numbers)
    rows = [model.update(arrays, place, numbers) for _ in range(6000)][100:]
    for name, wanted, elsewhere in zip(("energy", "abs_m"), exact(3, k), exact(3, 0.8 * k), strict=True):
        found = gamma_method(np.array([row[name] for row in rows]))
        assert abs(found.mean - wanted) < 4 * found.error
        assert abs(found.mean - elsewhere) > 4 * found.error


def test_nothing_that_is_printed_or_written_has_another_theorys_words(finished, ising):
    folder, done = finished
    report = PICTURES.sub("", (folder / "report.html").read_text())
    found = load(folder)
    followed = Followed(folder)
    followed.advance()
    chain = next(iter(found.state.chains))
    page = [
        encoded(sent).decode()
        for sent in (state_sent(followed), chain_sent(followed, chain), transition_sent(followed))
    ]
    texts = [done.stdout, done.stderr, report, *page]
    texts += [path.read_text() for path in folder.glob("*.csv")] + [(folder / "spec.toml").read_text()]
    assert [hit.group() for text in texts for hit in FOREIGN.finditer(text)] == []
    assert [hit.group() for text in page for hit in OF_TRAJECTORIES.finditer(text)] == []
    assert "T_c(16^2)" in done.stdout
    with (folder / "rows.csv").open() as stream:
        assert {"energy", "abs_m"} <= set(next(csv.reader(stream)))


def test_the_transition_of_the_infinite_system_is_onsagers(longer):
    """The spec has a seed and is deterministic: without a change of the code the deviation, 0.8 errors, stays."""
    _, found = longer
    result = found["result"]
    assert result["established"]
    assert result["error"] < 0.02
    assert abs(result["value"] - T_C) < 2 * result["error"]
    for one in found["systems"]:
        assert abs(one["result"]["value"] - T_C) > 5 * one["result"]["error"], "a finite system has another T_c"


def test_its_report_shows_where_a_peak_was_expected_in_its_own_words_and_no_heads(longer):
    folder, found = longer
    report = PICTURES.sub("", (folder / "report.html").read_text())
    expected = report.partition("Where the peak was expected")[2].partition("</table>")[0]
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", expected)
    assert heads == ["system", "by", "K", "by the curve", "why"]
    assert re.search(r"16\^2 has its peak at K = 0\.4\d+\(\d+\)", expected)
    assert "Heads of the conductor" not in report
    assert found["heads"] == {}


def test_a_campaign_that_was_killed_goes_on_with_the_same_bits(finished, ising, tmp_path):
    folder, _ = finished
    killed = tmp_path / "run"
    journal = killed / "journal.jsonl"
    arguments = [sys.executable, "-m", "metalforge", *map(str, scan(killed))]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 40):
            pass
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    done = command("resume", killed)
    assert done.returncode == 0, done.stderr
    one, other = load(killed).state, load(folder).state
    assert one.interrupted == other.interrupted == []
    assert one.digest() == other.digest()
    assert {name: log.columns for name, log in one.chains.items()} == {
        name: log.columns for name, log in other.chains.items()
    }


def test_reading_a_campaign_runs_no_code_that_it_names(finished):
    folder, _ = finished
    refused = command("report", folder)
    assert refused.returncode == 2
    assert f"--plugin {EXAMPLES / 'ising.py'}" in refused.stderr
    for given in (
        ("--plugin", EXAMPLES / "ising.py", "replay", folder),
        ("replay", folder, f"--plugin={EXAMPLES}/ising.py"),
    ):
        assert "T_c(16^2)" in command(*given).stdout
    environment = os.environ | {plugins.FILES: str(EXAMPLES / "ising.py")}
    found = json.loads(command("replay", folder, "--json", env=environment).stdout)
    assert found["result"]["name"] == found["result"]["label"] == "T_c"
    assert [one["system"] for one in found["systems"]] == [[16, 16], [32, 32]]


def test_plug_in_files_that_cannot_be_had_are_named(tmp_path):
    with pytest.raises(UnknownNameError):
        find_theory("isinq")
    with pytest.raises(PluginError) as refused:
        plugins.load_files([tmp_path / "none.py"])
    assert "none.py" in str(refused.value)
    (tmp_path / "broken_theory.py").write_text("1 / 0\n")
    with pytest.raises(PluginError) as refused:
        plugins.load_files([tmp_path / "broken_theory.py"])
    assert "ZeroDivisionError" in str(refused.value)
    assert f"{plugins._PREFIX}broken_theory" not in sys.modules


def test_the_example_is_one_short_file():
    assert len((EXAMPLES / "ising.py").read_text().splitlines()) <= 150
