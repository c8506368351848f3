from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.core import (
    Cost,
    Kind,
    Measured,
    Modelled,
    NoEngine,
    PlacementError,
    SpecError,
    SubstrateInfo,
    UnknownNameError,
)
from metalforge.core.capabilities import capability_from_label, missing_capabilities
from metalforge.substrates import WORKLOADS, Policy, load_workload, route, workload
from metalforge.substrates.meters import ModelledMeter
from metalforge.substrates.npu.discovery import Npu, emulated_npu
from metalforge.testing import check_substrate

LABELS = {
    Kind.CPU: "f64 f32 reduce spmv eigen cg simd",
    Kind.GPU: "f64 f32 df64 reduce spmv eigen cg kernel timestamps pcie streaming",
    Kind.NPU: "quant4/8 batch8 weight-mut pcie streaming",
}


class Fake(NoEngine):
    """A substrate with given capabilities and costs."""

    def __init__(self, kind, name=None, labels=None, latency=None, energy=None, measured=False):
        names = (LABELS[kind] if labels is None else labels).split()
        self.info = SubstrateInfo(
            kind=kind, name=name or kind, model="fake", capabilities=tuple(map(capability_from_label, names))
        )
        self._cost = Cost(
            latency=self._quantity(latency, "s", measured),
            energy=self._quantity(energy, "J", measured),
            unknown="" if latency and energy else "not known",
        )

    @staticmethod
    def _quantity(value, unit, measured):
        if value is None:
            return None
        return Measured(value=value, unit=unit, how="t") if measured else Modelled(value=value, unit=unit, profile="t")

    def cost(self, workload):
        return self._cost

    def meter(self):
        return ModelledMeter(profile="t", power_w=1.0)


CPU, GPU, NPU = (Fake(kind, latency=1.0, energy=1.0) for kind in Kind)


# The published design's answers with one substrate of each kind (origin rule: preferred kind, else GPU, NPU, CPU).
ANSWERS = {
    "md_force": Kind.GPU,
    "hfb_eigensolve": Kind.GPU,
    "lattice_cg": Kind.GPU,
    "esn_npu_inference": Kind.NPU,
    "esn_gpu_inference": Kind.GPU,
    "cpu_validation": Kind.CPU,
    "spectral_spmv": Kind.GPU,
    "lattice_cg_df64": Kind.GPU,
    "hetero_npu_phase_classifier": Kind.NPU,
    "streaming_compute": Kind.GPU,
    "validation_oracle": Kind.GPU,
}


@pytest.mark.parametrize(("name", "kind"), ANSWERS.items())
def test_origin_order_whatever_the_order_of_the_list(name, kind):
    for substrates in permutations([CPU, GPU, NPU]):
        assert route(workload(name), substrates, Policy.ORIGIN).substrate.kind is kind


def test_all_workloads_are_the_designs_but_the_update_of_chains():
    assert set(WORKLOADS) - set(ANSWERS) == {"chain_update"}


def test_origin_takes_the_first_of_a_kind_and_ignores_cost():
    slow, fast = Fake(Kind.GPU, "slow", latency=9.0), Fake(Kind.GPU, "fast", latency=1.0)
    assert route(workload("md_force"), [slow, fast], "origin").substrate.name == "slow"
    assert route(workload("md_force"), [slow, fast], "latency").substrate.name == "fast"


def test_preference_is_dropped_when_the_kind_cannot():
    weak = Fake(Kind.NPU, labels="weight-mut")
    with_quant = Fake(Kind.GPU, labels="quant8")
    assert route(workload("esn_npu_inference"), [weak, with_quant], "origin").substrate.kind is Kind.GPU


def test_preference_comes_before_cost_unless_ignored():
    cpu = Fake(Kind.CPU, labels="quant8", latency=7e-6, energy=1e-4)
    npu = Fake(Kind.NPU, latency=650e-6, energy=6e-4)
    kept = route(workload("esn_npu_inference"), [cpu, npu], Policy.LATENCY)
    assert kept.substrate.kind is Kind.NPU
    assert kept.rejected[0].reason == "can, but the workload prefers npu"
    assert kept.rejected[0].cost.latency.value == 7e-6
    free = route(workload("esn_npu_inference"), [cpu, npu], Policy.LATENCY, ignore_preference=True)
    assert free.substrate.kind is Kind.CPU
    assert "650 us (modelled: t)" in free.rejected[0].reason


def test_policies_can_disagree_and_say_why():
    quick = Fake(Kind.GPU, latency=1e-3, energy=1.0)
    frugal = Fake(Kind.CPU, latency=1e-2, energy=0.1)
    by_time = route(workload("md_force"), [frugal, quick], Policy.LATENCY)
    by_energy = route(workload("md_force"), [quick, frugal], Policy.ENERGY)
    assert (by_time.substrate.kind, by_energy.substrate.kind) == (Kind.GPU, Kind.CPU)
    assert by_time.reason == "lowest latency: 1 ms (modelled: t)"
    assert by_energy.rejected[0].reason == "can, but energy 1 J (modelled: t) against energy 100 mJ (modelled: t)"


def test_a_substrate_without_a_figure_comes_last_and_is_counted():
    decision = route(workload("md_force"), [Fake(Kind.GPU), Fake(Kind.CPU, energy=5.0)], Policy.ENERGY)
    assert decision.substrate.kind is Kind.CPU
    assert "1 without a figure" in decision.reason
    blind = route(workload("md_force"), [Fake(Kind.GPU), Fake(Kind.CPU)], Policy.ENERGY)
    assert blind.substrate.kind is Kind.GPU
    assert "no energy figure" in blind.reason


def test_measured_and_modelled_costs_are_not_ranked_against_each_other():
    decision = route(
        workload("md_force"), [Fake(Kind.GPU, latency=9.0, measured=True), Fake(Kind.CPU, latency=1.0)], "latency"
    )
    assert decision.substrate.kind is Kind.GPU
    assert "measured for some and modelled for others" in decision.reason


def test_nobody_can_says_what_each_one_lacks():
    with pytest.raises(PlacementError) as error:
        route(workload("streaming_compute"), [CPU, NPU])
    assert "cpu: cannot: lacks streaming, pcie" in str(error.value)
    assert "npu: cannot: lacks f64" in str(error.value)
    with pytest.raises(PlacementError, match="no substrates"):
        route(workload("md_force"), [])


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"cpu_validation, .*\nhint.*`lattice_cg`"):
        workload("latice_cg")
    with pytest.raises(UnknownNameError, match="known: energy, latency, origin"):
        route(workload("md_force"), [CPU], "speed")


@given(
    st.lists(
        st.builds(
            Fake,
            st.sampled_from(list(Kind)),
            labels=st.lists(st.sampled_from(sorted({w for v in LABELS.values() for w in v.split()})), min_size=1).map(
                " ".join
            ),
            latency=st.one_of(st.none(), st.floats(1e-6, 1.0)),
        ),
        max_size=5,
    ),
    st.sampled_from(sorted(WORKLOADS)),
    st.sampled_from(list(Policy)),
)
def test_every_substrate_is_chosen_or_turned_down_once(substrates, name, policy):
    substrates = [
        Fake(s.info.kind, f"s{i}", " ".join(c.label for c in s.info.capabilities)) for i, s in enumerate(substrates)
    ]
    load = workload(name)
    capable = [s for s in substrates if not missing_capabilities(s.info.capabilities, load.needs)]
    if not capable:
        with pytest.raises(PlacementError):
            route(load, substrates, policy)
        return
    decision = route(load, substrates, policy)
    assert decision.substrate in [s.info for s in capable]
    names = [decision.substrate.name, *(r.name for r in decision.rejected)]
    assert sorted(names) == sorted(s.info.name for s in substrates)


GOOD = 'name = "mine"\nneeds = ["f64", "quant4/8"]\nprefer = "gpu"\nflops = 1e6\nbytes_moved = 8000\n'


def test_a_workload_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    load = load_workload(path)
    assert (load.name, load.prefer, load.flops) == ("mine", Kind.GPU, 1e6)
    assert [c.label for c in load.needs] == ["f64", "quant4/8"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "flop = 3\n", r"bad.toml: unknown key `flop`; known: .*\n.*did you mean `flops`"),
        (GOOD.replace('"f64"', '"f65"'), "unknown capability `f65`"),
        (GOOD.replace("1e6", '"many"'), r"Expected `float`.*\$\.flops"),
        (GOOD.replace('"gpu"', '"tpu"'), r"\$\.prefer"),
        (GOOD.replace("1e6", "nan"), "must be positive"),
        (GOOD.replace('["f64", "quant4/8"]', "[]"), "at least one capability"),
        ("name = ", "bad.toml: .*(at|in)"),
        ("\0", "bad.toml: .*(at|in)"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((SpecError, UnknownNameError), match=message):
        load_workload(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        load_workload(tmp_path / "absent.toml")


def test_the_conformance_kit_notices_what_is_wrong():
    check_substrate(NPU)
    with pytest.raises(AssertionError, match="one word"):
        check_substrate(Fake(Kind.CPU, "two words"))
    with pytest.raises(AssertionError, match="positive"):
        check_substrate(Fake(Kind.CPU, latency=-1.0))
    with pytest.raises(AssertionError, match="one capability"):
        check_substrate(Fake(Kind.CPU, labels=""))


def test_claimed_and_published_profiles_disagree_and_are_named():
    load = workload("hetero_npu_phase_classifier")
    published, claimed = (emulated_npu(f"akd1000-{p}").cost(load) for p in ("published", "claimed"))
    assert published.latency == Modelled(value=650e-6, unit="s", profile="akd1000-published")
    assert claimed.latency.value == 54e-6
    assert claimed.energy.value == pytest.approx(1.4e-6)
    with pytest.raises(UnknownNameError, match="did you mean `akd1000-claimed`"):
        emulated_npu("akd1000-claim")


@pytest.mark.parametrize("policy", list(Policy))
def test_a_board_is_preferred_to_its_emulation(policy):
    board = Npu("akida0", "BrainChip AKD1000", {})
    decision = route(workload("esn_npu_inference"), [emulated_npu(), board], policy)
    assert decision.substrate.name == "akida0"
    assert decision.rejected[0].reason == "can, but it is emulated and a real npu is here"


def test_decisions_are_records():
    decision = route(workload("md_force"), [CPU, GPU])
    assert msgspec.json.decode(msgspec.json.encode(decision.cost))["latency"]["source"] == "modelled"
