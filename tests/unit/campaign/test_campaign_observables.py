"""Observables that a spec names: of every theory, every so many updates, alone and in batches."""

import msgspec
import pytest

from metalforge.campaign.report.result import Results
from metalforge.campaign.running import lanes
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, Steering
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.observables import _REGISTERED, Observable, find_observables, register_observable
from metalforge.core.rows import CountedWarmUp
from metalforge.lattice import Chain
from metalforge.plasma.trajectory import TrajectoryRun
from reference.small_campaigns import PARTICLES, ROUNDS, run_until
from reference.wide_engine import WideEngine, with_cards

EVERY = 7


def trace(look):
    """The real part of one element, averaged over all links: no kernel of a batch measures it."""
    return float(look.chain.field.to_links()[..., 0, 0].real.mean())


def leftmost(particles):
    """The mean of the first coordinate."""
    return float(particles.positions[:, 0].mean())


MEASURES = {"lattice": ("trace", trace), "plasma": ("leftmost", leftmost)}


@pytest.fixture(autouse=True)
def registered():
    """An observable of each theory, which no module of the package knows."""
    before = dict(_REGISTERED)
    for theory, (name, measure) in MEASURES.items():
        register_observable(theory, Observable(name=name, label=f"mean {name}", measure=measure))
    yield
    _REGISTERED.clear()
    _REGISTERED.update(before)


def asking(spec, every=EVERY, **changes):
    """Return the spec with the observable of its theory."""
    name, _ = MEASURES[spec.theory.table()]
    theory = msgspec.structs.replace(spec.theory, observables=(name,), observe_every=every)
    return msgspec.structs.replace(spec, theory=theory, **changes)


def run(spec, folder):
    with Campaign.open(spec, folder) as campaign:
        return campaign.run()


def columns_of(state, name):
    return {log.id: log.column(name, measured=False).tolist() for log in state.chains.values()}


def links_alone(spec, log):
    """Return what the links of a chain that runs by itself have after every update."""
    chain = Chain(spec.theory.chain(log.system, log.coordinate, seed=spec.seed, stream=log.stream, start=log.start))
    for _ in range(log.rows):
        chain.update()
        yield float(chain.field.to_links()[..., 0, 0].real.mean())


def particles_alone(spec, log):
    """Return what the particles of a trajectory that runs by itself have after every segment."""
    from metalforge.native.cpu_engine import cpu_engine

    wanted = spec.theory.trajectory(log.system, log.coordinate, seed=spec.seed, stream=log.stream, start=log.start)
    alone = TrajectoryRun(
        wanted, spec.theory.update_time, CountedWarmUp(total=spec.warmup.longest), engine=cpu_engine(threads=1)
    )
    for update in range(log.rows):
        if update == log.warmup:
            alone.end_warmup()
        alone.step()
        yield leftmost(alone.particles)


@pytest.mark.parametrize(("spec", "alone"), [(ROUNDS, links_alone), (PARTICLES, particles_alone)])
@pytest.mark.parametrize("every", [1, EVERY])
def test_rows_have_the_last_measurement_of_every_so_many_updates(tmp_path, spec, alone, every):
    spec = asking(spec, every)
    state = run(spec, tmp_path / "run")
    name, _ = MEASURES[spec.theory.table()]
    log = next(iter(state.chains.values()))
    measured = list(alone(spec, log))
    assert log.column(name, measured=False).tolist() == [measured[i - i % every] for i in range(log.rows)]
    said = Results(state).summary
    longest = max(said["chains"], key=lambda chain: chain.measured)
    assert longest.values[name].mean == pytest.approx(state.chains[longest.id].column(name).mean())


@pytest.mark.parametrize("spec", [ROUNDS, PARTICLES])
def test_a_campaign_that_is_resumed_has_the_same_measurements(tmp_path, spec):
    spec = asking(spec)
    whole = run(spec, tmp_path / "whole")
    with Campaign.open(spec, tmp_path / "parts") as campaign:
        run_until(campaign, spec.budget.trajectories // 3)
    with Campaign.resume(tmp_path / "parts") as campaign:
        parts = campaign.run()
    assert parts.digest() == whole.digest()
    name, _ = MEASURES[spec.theory.table()]
    assert columns_of(parts, name) == columns_of(whole, name)


def test_a_batch_has_what_its_chains_have_alone(tmp_path, monkeypatch):
    engine = WideEngine(busy_sites=4 * 128)
    with_cards(monkeypatch, engine)
    running = Running(block=30, checkpoint_s=0.0, deterministic=True, substrate="cuda:0")
    spec = asking(ROUNDS, running=running, budget=Budget(trajectories=900), steering=Steering(visit=40, initial=4))
    assert lanes.arranged("C", spec, lanes.lanes_here(spec)).lanes[0].sites
    state = run(spec, tmp_path / "run")
    assert max(engine.sizes) >= 4  # chains moved at once
    for log in state.chains.values():
        measured = list(links_alone(spec, log))
        assert log.column("trace", measured=False).tolist() == [measured[i - i % EVERY] for i in range(log.rows)]


def test_names_and_spacings_are_checked_with_the_spec():
    with pytest.raises(UnknownNameError) as refused:
        msgspec.structs.replace(ROUNDS.theory, observables=("leftmost",))
    assert "trace" in str(refused.value)
    with pytest.raises(SpecError) as refused:
        asking(ROUNDS, every=0)
    assert "observe_every" in str(refused.value)
    with pytest.raises(SpecError):
        msgspec.structs.replace(ROUNDS.theory, observables=("plaquette",))
    with pytest.raises(SpecError):
        msgspec.structs.replace(ROUNDS.theory, observables=("trace", "trace"))


def test_an_observable_that_fails_is_named(tmp_path):
    def broken(look):
        raise ZeroDivisionError("no such thing")

    register_observable("lattice", Observable(name="broken", measure=broken))
    spec = msgspec.structs.replace(ROUNDS, theory=msgspec.structs.replace(ROUNDS.theory, observables=("broken",)))
    with (
        Campaign.open(spec, tmp_path / "run") as campaign,
        pytest.raises(SpecError, match=r"broken.*ZeroDivisionError"),
    ):
        campaign.run()


def test_the_same_name_may_be_one_of_each_theory():
    register_observable("plasma", Observable(name="trace", measure=leftmost))
    assert [found.measure for found in find_observables("plasma", ["trace"])] == [leftmost]
    assert [found.measure for found in find_observables("lattice", ["trace"])] == [trace]
    with pytest.raises(SpecError):
        register_observable("plasma", Observable(name="trace", measure=leftmost))
