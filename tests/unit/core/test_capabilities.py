import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.core import QuantizedInference, Trait, UnknownNameError
from metalforge.core.capabilities import BatchInference, capability_from_label, missing_capabilities

widths = st.frozensets(st.integers(1, 16), min_size=1)
capabilities = st.one_of(
    st.sampled_from(list(Trait)),
    st.builds(QuantizedInference, bits=widths),
    st.builds(BatchInference, max_batch=st.integers(1, 4096)),
)


def test_a_chip_of_four_and_eight_bits_meets_either():
    chip = QuantizedInference(bits=frozenset({4, 8}))
    assert chip.meets(capability_from_label("quant4"))
    assert chip.meets(capability_from_label("quant8"))
    assert not chip.meets(capability_from_label("quant2"))
    assert not capability_from_label("quant4").meets(chip)


@given(widths, widths)
def test_widths_meet_by_inclusion(have, need):
    assert QuantizedInference(bits=have).meets(QuantizedInference(bits=need)) == need.issubset(have)


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_larger_batch_does_for_a_smaller_one(have, need):
    assert BatchInference(max_batch=have).meets(BatchInference(max_batch=need)) == (need <= have)


@given(capabilities)
def test_meets_itself_and_its_label_reads_back(capability):
    assert capability.meets(capability)
    assert capability_from_label(capability.label) == capability


@given(st.lists(capabilities, max_size=6), st.lists(capabilities, min_size=1, max_size=6))
def test_missing_is_empty_exactly_when_everything_is_met(have, need):
    missing = missing_capabilities(have, need)
    assert set(missing) <= set(need)
    assert (not missing) == all(any(h.meets(n) for h in have) for n in need)


def test_the_twelve_of_the_origin_and_three_more_exist():
    labels = {t.label for t in Trait} | {"quant4", "batch8"}
    assert labels == {
        "f64", "f32", "quant4", "batch8", "weight-mut", "reduce", "spmv", "eigen", "cg", "kernel", "simd", "timestamps",
        "df64", "pcie", "streaming",
    }  # fmt: skip


def test_bad_labels_and_parameters():
    with pytest.raises(UnknownNameError, match=r"`f63`(.|\n)*mean `f64`"):
        capability_from_label("f63")
    with pytest.raises(ValueError, match=r"widths in 1\.\.16"):
        capability_from_label("quant99")
    with pytest.raises(ValueError, match="at least 1"):
        capability_from_label("batch0")
