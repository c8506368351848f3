import msgspec
import pytest

from metalforge.campaign.state import fold
from metalforge.campaign.store.records import EMULATED_NPU, Assigned, Decided, Estimated, Sampled, Silicon
from metalforge.campaign.view import view_of
from reference.campaigns import BEGAN, WARMUP, ending, interrupted, opened, records_of, spec_of


def running(cut=None, **budget):
    records = records_of(spec_of(**budget), rows=200)
    return records if cut is None else records[:cut]


def begun(records, visit):
    """Return the records until a visit was assigned."""
    index = next(i for i, r in enumerate(records) if isinstance(r, Assigned) and r.visit == visit)
    return records[: index + 1]


def test_chains_with_phase_rate_and_whether_they_run():
    records = begun(running(seconds=100.0), 2)
    view = view_of(fold(records), records[-1].at)
    assert [chain.id for chain in view.chains] == ["c0000", "c0001", "c0002"]
    done, new = view.chains[0], view.chains[2]
    assert (done.phase, done.busy, done.updates, done.measured) == ("measured", False, 200 + WARMUP, 200)
    assert done.per_second == pytest.approx(240 / 1.5)  # three records of half a second of processor time
    assert (new.phase, new.busy, new.updates, new.per_second) == ("warm-up", True, 0, None)
    assert (view.status, view.trajectories) == ("running", 480)


def test_hmc_chains_have_acceptance_of_the_measurement_and_iterations():
    state = fold(records_of(spec_of(algorithm="hmc", flavors=4, trajectories=9999), rows=200))
    for chain, log in zip(view_of(state, state.last_at).chains, state.chains.values(), strict=True):
        accepted, solves = chain.recent
        share = sum(log.columns["accepted"][WARMUP:]) / 200
        assert (accepted.name, accepted.label, accepted.text) == ("accepted", "accepted", f"{share:.0%}")
        assert accepted.value == pytest.approx(share)
        assert (solves.name, solves.label) == ("cg_iterations", "CG per solve")
        assert solves.value == pytest.approx(200, abs=4)
    assert view_of(fold(running()), BEGAN + 20).chains[0].recent == ()


def test_the_budget_that_ends_first_gives_the_time_left():
    records = running(seconds=100.0, trajectories=2400)
    state = fold(records)
    view = view_of(state, records[-1].at)
    rate = 1200 / 10.0  # 5 visits of 240 updates in 10 seconds
    assert view.per_second == pytest.approx(rate)
    left = {budget.name: budget.left_s for budget in view.budgets}
    assert left == {"seconds": pytest.approx(90.0), "trajectories": pytest.approx(1200 / rate)}
    assert (view.ends_by, view.left_s) == ("trajectories", pytest.approx(10.0))
    assert {budget.name: budget.share for budget in view.budgets} == {
        "seconds": pytest.approx(0.1),
        "trajectories": pytest.approx(0.5),
    }


def test_the_target_is_extrapolated_as_one_over_the_square_root():
    records = running(seconds=1000.0, target_error=0.3 * 4800**-0.5)  # the model's errors are 0.3 n^(-1/2)
    view = view_of(fold(records), records[-1].at)
    assert view.ends_by == "target error"
    assert view.left_s == pytest.approx((4800 - 1200) / 120.0)
    target = view.budgets[0]
    assert (target.used, target.share) == (pytest.approx(0.3 * 1200**-0.5), pytest.approx(0.25))


def test_no_estimate_yet_means_no_time_to_the_target():
    records = begun(running(seconds=100.0, target_error=0.001), 1)
    view = view_of(fold(records), records[-1].at)
    assert (view.budgets[0].used, view.budgets[0].left_s) == (None, None)
    assert view.ends_by == "seconds"
    assert view.systems[0].reason == "one beta only"


def test_decisions_are_in_order_with_their_reasons():
    records = running()
    view = view_of(fold(records), records[-1].at, last_decisions=4)
    assert [(d.what, d.number) for d in view.decisions] == [
        ("visit", 3),
        ("warmup-ends", 3),
        ("visit", 4),
        ("warmup-ends", 4),
    ]
    visit, ended = view.decisions[:2]
    assert (visit.chain, visit.coordinate, visit.fresh, visit.updates) == ("c0003", 5.71, True, 200)
    assert visit.reason == "a first look <spread> evenly; hint: none"
    assert (ended.chain, ended.coordinate, ended.fresh, ended.updates) == ("c0003", 5.71, False, WARMUP)
    assert (view.visits, view.decided) == (5, 5)
    assert view.decisions[1].seconds == pytest.approx(6.5)


def test_heads_are_summed_up_in_one_line():
    view = view_of(fold(records_of(spec_of(), betas=(5.69,), rows=60, head=True)), BEGAN + 2)
    assert view.heads == "quenched_length acts; 1 of 2 heads do not act: does not apply"
    assert all(decision.what != "head" for decision in view.decisions)


def test_a_trusted_head_without_a_decision_is_not_among_those_that_do_not_act():
    heads = [("beta_priority", True), ("quality", False)]
    said = [Decided(at=BEGAN, what="head", by=name, reason="no skill", trusted=trusted) for name, trusted in heads]
    view = view_of(fold([opened(spec_of()), *said]), BEGAN)
    assert view.heads == "beta_priority is trusted, no decision yet; 1 of 2 heads do not act: no skill"


def test_why_heads_do_not_act_is_said_once_for_all_of_them():
    why = "recorded, not acted on: trained on HMC, these chains are heat bath sweeps"
    heads = [("beta_priority", why), ("rejection", "does not apply: sweeps have no accept test"), ("anomaly", why)]
    said = [Decided(at=BEGAN, what="head", by=name, reason=reason, trusted=False) for name, reason in heads]
    view = view_of(fold([opened(spec_of()), *said]), BEGAN)
    assert view.heads == "none of 3 heads acts: trained on HMC, these chains are heat bath sweeps"


def test_substrates_with_one_role_stand_together_and_emulated_ones_say_so():
    cores = [Silicon(name=f"cpu:{i}", device="cpu:0", model="m", role="produces") for i in range(8)]
    board = Silicon(name=EMULATED_NPU, device="host", model="m", role="screens")
    first = msgspec.structs.replace(opened(spec_of()), silicon=(*cores, board))
    assert view_of(fold([first]), BEGAN).substrates == ("cpu:0 to cpu:7 (produces)", "npu-emulated (screens)")


def test_ends():
    records = running()
    finished = ending(records, stopped_by="target")
    late = BEGAN + 1e6
    view = view_of(fold(finished), late)
    assert (view.status, view.ending) == ("finished", "the target error was reached")
    assert (view.elapsed_s, view.left_s) == (10.0, None)
    assert not any(chain.busy for chain in view.chains)
    stopped = view_of(fold(interrupted(records)), late)
    assert (stopped.status, stopped.ending, stopped.elapsed_s) == ("interrupted", "SIGTERM", 11.0)


def test_where_samples_come_every_two_seconds_silence_is_known_sooner():
    records = begun(running(), 3)
    at = records[-1].at
    sampled = fold([*records, Sampled(at=at, window_s=4.0, stages=())])
    assert [view_of(state, at + 15).status for state in (fold(records), sampled)] == ["running", "silent"]
    assert view_of(sampled, at + 5).status == "running"


def test_a_process_that_was_killed_is_seen_by_its_silence():
    records = begun(running(), 3)
    at = records[-1].at
    assert view_of(fold(records), at + 5).status == "running"
    dead = view_of(fold(records), at + 3600)
    assert (dead.status, dead.silent_s, dead.elapsed_s) == ("silent", 3600.0, at - BEGAN)
    assert not any(chain.busy for chain in dead.chains)


def test_an_estimate_that_is_behind_a_dead_campaign_says_after_how_many_updates():
    records = records_of(spec_of(seconds=100.0), rows=200)
    estimates = [i for i, record in enumerate(records) if isinstance(record, Estimated) and record.result is not None]
    records = [record for i, record in enumerate(records) if i != estimates[-1]]
    state = fold(records)
    first = state.spec.theory.systems[0]
    behind = state.last_look(first).trajectories
    assert behind < state.trajectories
    running, dead = view_of(state, state.last_at), view_of(state, state.last_at + 3600)
    assert [view.systems[0].after for view in (running, dead)] == [None, behind]
    assert running.after_text(running.systems[0]) == ""
    assert f"{behind:,} of {state.trajectories:,}" in dead.after_text(dead.systems[0])


def test_an_empty_campaign_and_an_ordering_that_was_chosen():
    spec = msgspec.structs.replace(spec_of(), ordering="auto")
    records = [opened(spec)]
    view = view_of(fold(records), BEGAN)
    assert (view.trajectories, view.per_second, view.chains, view.ordering) == (0, 0.0, (), "auto")
    records.append(Decided(at=BEGAN + 1, what="ordering", by="C", reason="measured"))
    assert view_of(fold(records), BEGAN + 1).ordering == "C (auto)"


def test_a_view_travels_as_json():
    view = view_of(fold(running()), BEGAN + 11)
    assert msgspec.json.decode(msgspec.json.encode(view), type=type(view)) == view
