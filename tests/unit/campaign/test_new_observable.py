"""An observable is one registration: rows, journal, checkpoint, report, CSV file and `--json` follow from it."""

import csv
import json

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.campaign.report.downloads import ROWS
from metalforge.campaign.report.page import write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Rows
from metalforge.cli.lattice import app
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.observables import _REGISTERED, Observable, register_observable
from metalforge.lattice import Chain
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.observables import named, standard
from metalforge.lattice.run import ChainRun
from reference.small_campaigns import ROUNDS, run_until


def link_trace(field):
    """The mean of Re tr U / 3 over all links."""
    return float(np.trace(field.to_links(), axis1=-2, axis2=-1).real.mean()) / 3


@pytest.fixture(autouse=True)
def registered():
    """An observable that no module of the package knows: one definition."""
    observable = Observable(name="link_trace", label="Re tr U", measure=lambda look: link_trace(look.chain.field))
    register_observable("lattice", observable)
    yield
    del _REGISTERED["lattice", "link_trace"]


@pytest.fixture
def spec():
    lattice = msgspec.structs.replace(ROUNDS.theory, observables=("link_trace",))
    return msgspec.structs.replace(ROUNDS, theory=lattice)


@pytest.mark.usefixtures("undrawn")
def test_a_new_observable_is_a_column_everywhere(spec, tmp_path):
    directory = tmp_path / "run"
    with Campaign.open(spec, directory) as campaign:
        run_until(campaign, 200)
    checkpoints = [ChainRun.load(path) for path in (directory / "chains").glob("*.h5")]
    assert checkpoints
    assert all("link_trace" in run.log.columns for run in checkpoints)
    with Campaign.resume(directory) as campaign:  # rows that are computed again must agree in this column, too
        state = campaign.run()
    records = read_journal(directory / JOURNAL)
    assert all("link_trace" in record.columns for record in records if isinstance(record, Rows))
    log = next(iter(fold(records).chains.values()))
    chain = Chain(
        spec.theory.chain(log.system, log.coordinate, seed=spec.seed, stream=log.stream, start=log.start), threads=1
    )
    chain.update()
    assert log.columns["link_trace"][0] == link_trace(chain.field)

    page = write_report(Results(state), directory).read_text()
    assert "Re tr U" in page
    with (directory / ROWS).open() as stream:
        row = next(csv.DictReader(stream))
    assert float(row["link_trace"]) == log.columns["link_trace"][0]
    said = json.loads(msgspec.json.encode(Results(state).summary))
    means = {entry["id"]: entry["values"]["link_trace"]["mean"] for entry in said["chains"]}
    assert means[log.id] == pytest.approx(state.chains[log.id].column("link_trace").mean())


def test_a_run_outside_a_campaign_has_it_by_name():
    options = ("generate", "--dims", "4", "4", "2", "2", "--warmup", "2", "--trajectories", "9", "--json")
    done = CliRunner().invoke(app, [*options, "--observable", "link_trace"])
    assert abs(json.loads(done.stdout)["observables"]["link_trace"]["mean"]) < 0.5


def test_names_are_checked_when_a_spec_is_made():
    with pytest.raises(UnknownNameError, match="link_trase"):
        Lattice(observables=("link_trase",))
    with pytest.raises(SpecError, match="sea"):
        Lattice(observables=("cg_total",))
    with pytest.raises(SpecError, match="link_trace"):
        register_observable("lattice", named(["link_trace"])[0])


def test_standard_observables_of_sweeps_and_of_trajectories_with_sea_quarks():
    gauge = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")
    hmc = ("delta_h", "accepted", "delta_h_quarter")
    sea = ("cg_iterations", "condensate", "condensate_pairs", "condensate_connected")
    assert standard(trajectories=False, sea=False) == gauge
    assert standard(trajectories=True, sea=True) == (*gauge, *hmc, *sea, "n_steps")
