"""The room on the chip: one layer, one processor, and reasons when there is none."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.substrates.npu.device import ResourceError
from metalforge.substrates.npu.mesh import layer_bytes, plan, units_on_chip
from metalforge.substrates.npu.program import Activation, FullyConnected, Head, Program

LIMIT = 40960


def chain(*lines, heads=0):
    layers = tuple(
        FullyConnected(name=f"l{i}", weights=np.zeros((n, u), np.int8), activation=Activation.BOUNDED_RELU)
        for i, (n, u) in enumerate(pairwise(lines))
    )
    return Program(name="p", layers=layers, heads=tuple(Head(name=f"h{i}", start=i, width=1) for i in range(heads)))


def test_the_byte_rule_in_numbers():
    # A byte a weight, rounded up to 32, and 32 more: 178 -> 192, 192 + 32 = 224.
    assert layer_bytes(178, 128) == 128 * 224
    assert layer_bytes(32, 1) == 64
    assert layer_bytes(33, 1) == 96
    assert units_on_chip(178, LIMIT) == 182


@given(inputs=st.integers(1, 57334), units=st.integers(1, 100))
def test_the_byte_rule_never_understates_a_plain_byte_a_weight(inputs, units):
    assert layer_bytes(inputs, units) >= inputs * units + 32 * units
    most = units_on_chip(inputs, LIMIT)
    assert layer_bytes(inputs, most) <= LIMIT < layer_bytes(inputs, most + 1)


def test_a_reservoir_with_its_heads_is_two_on_chip_processors():
    placement = plan(chain(178, 128, 12))
    assert [row.processor for row in placement.rows] == ["on-chip 0", "on-chip 1"]
    assert [row.bytes for row in placement.rows] == [28672, 12 * 160]
    assert "p on akd1000-published" in str(placement)
    assert "l0     on-chip 0  28672  within the 40960 bytes" in str(placement)


def test_wide_layers_go_to_external_memory_first_and_say_by_how_much():
    placement = plan(chain(8, 8, 2048, 2048, 8))
    assert [row.processor for row in placement.rows] == ["on-chip 0", "external 0", "external 1", "on-chip 1"]
    assert placement.rows[2].why == f"{2048 * 2080 - LIMIT} bytes above the {LIMIT} of an on-chip processor"


def test_narrow_layers_spill_to_external_memory_but_never_push_a_wide_one_out():
    placement = plan(chain(*[8] * 22, 2048))
    kinds = [row.processor.split()[0] for row in placement.rows]
    assert kinds == ["on-chip"] * 18 + ["external"] * 4
    assert len(set(placement.processors)) == 22
    assert "those processors are all taken" in placement.rows[19].why
    assert placement.processors[-1] == 18  # the wide one, last of the chain, had the first choice


def test_the_chain_of_23_is_one_too_long():
    assert len(plan(chain(*[8] * 23)).rows) == 22
    with pytest.raises(ResourceError, match=r"23 layers, 1 more(.|\n)*hint: split"):
        plan(chain(*[8] * 24))


def test_five_wide_layers_are_one_too_many_and_the_remedy_works():
    assert len(plan(chain(*[512] * 5)).rows) == 4
    with pytest.raises(ResourceError) as caught:
        plan(chain(*[512] * 6))
    message = str(caught.value)
    assert "5 layers need external memory, 1 more than there are processors" in message
    assert f"layer `l0`: {512 * 544} bytes, {512 * 544 - LIMIT} above the {LIMIT} on chip" in message
    assert "75 units fit on chip" in message
    assert "fewer digits" in message
    # What the message proposes does fit: five layers, one narrowed to 75 units.
    assert plan(chain(512, 75, 512, 512, 512, 512)).rows[0].processor == "on-chip 0"


def test_a_layer_of_which_not_one_unit_fits_on_chip_says_so():
    lines = [57334, 1, 57334, 1, 57334, 1, 57334, 1, 57334, 1]
    with pytest.raises(ResourceError, match="one unit"):
        plan(chain(*lines))


@pytest.mark.parametrize(("heads", "used"), [(0, 179), (2, 203), (4, 227), (8, 275), (11, 311), (20, 419), (55, 839)])
def test_claimed_accounting_is_the_seeds_table(heads, used):
    placement = plan(chain(178, 128, heads=heads), "akd1000-claimed")
    assert placement.span == range(used)
    assert len(placement.rows) == 1 + heads


def test_claimed_accounting_ends_at_a_thousand():
    most = (1000 - 179) // 12
    assert plan(chain(178, 128, heads=most), "akd1000-claimed").span.stop <= 1000
    with pytest.raises(ResourceError, match=r"1007 NPs(.|\n)*hint: .*heads"):
        plan(chain(178, 128, heads=most + 1), "akd1000-claimed")
