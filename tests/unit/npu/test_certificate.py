from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metalforge.substrates.npu.certificate import overflow_certificate, split_lines
from metalforge.substrates.npu.products import CompiledLayer
from metalforge.substrates.npu.program import FullyConnected, ProgramError
from reference import npu as twin


def layer(weights, **keywords):
    return FullyConnected(name="wide", weights=np.asarray(weights, np.int8), **keywords)


@given(weights=arrays(np.int8, (3, 2), elements=st.integers(-1, 1)), input_bits=st.sampled_from([1, 2]))
def test_the_extremes_are_those_of_all_inputs(weights, input_bits):
    found = overflow_certificate(layer(weights, weight_bits=2, input_bits=input_bits))
    potentials = np.array(list(product(range(2**input_bits), repeat=3))) @ weights.astype(int)
    assert np.array_equal(found.lowest, potentials.min(axis=0))
    assert np.array_equal(found.highest, potentials.max(axis=0))


@pytest.mark.parametrize(
    ("lines", "weight", "margin"), [(4993, 7, 22), (4993, -7, 23), (4994, 7, -83), (4994, -7, -82), (57334, 0, 524287)]
)
def test_the_edge_is_at_4993_inputs(lines, weight, margin):
    found = overflow_certificate(layer(np.full((lines, 1), weight)))
    assert found.margin.tolist() == [margin]
    assert found.safe is (margin >= 0)


def test_one_unit_that_can_saturate_makes_the_layer_unsafe():
    weights = np.zeros((6000, 3), np.int8)
    weights[:, 1] = 7
    found = overflow_certificate(layer(weights))
    assert (found.margin >= 0).tolist() == [True, False, True]
    assert not found.safe
    # Signs that cancel in the sum do not help: an input may leave out the negative ones.
    weights[::2, 1] = -7
    assert overflow_certificate(layer(weights)).highest[1] == 3000 * 105


def test_a_smaller_accumulator_is_a_parameter():
    small = layer(np.full((2, 1), 7))
    assert overflow_certificate(small, bits=9).safe
    assert not overflow_certificate(small, bits=8).safe
    assert split_lines(small.weights, bits=8) == [slice(0, 1), slice(1, 2)]
    with pytest.raises(ProgramError, match="accumulator of 7"):
        split_lines(small.weights, bits=7)


def fewest_runs(weights, largest, bits):
    """The least number of runs by trying all: shortest path over cut positions."""
    floor, ceiling = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    least = [0]
    for end in range(1, len(weights) + 1):
        starts = [
            least[start]
            for start in range(end)
            if (largest * weights[start:end].clip(min=0).sum(axis=0)).max() <= ceiling
            and (largest * weights[start:end].clip(max=0).sum(axis=0)).min() >= floor
        ]
        least.append(1 + min(starts))
    return least[-1]


@given(
    weights=arrays(np.int8, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-7, 7)),
    bits=st.integers(8, 11),
)
def test_chunks_are_certified_cover_everything_and_none_fewer_would_do(weights, bits):
    whole = layer(weights)
    chunks = split_lines(whole.weights, bits=bits)
    assert [line for chunk in chunks for line in range(len(weights))[chunk]] == list(range(len(weights)))
    assert all(overflow_certificate(layer(weights[chunk]), bits=bits).safe for chunk in chunks)
    assert len(chunks) == fewest_runs(weights.astype(int), 15, bits)
    assert (len(chunks) == 1) is overflow_certificate(whole, bits=bits).safe


@given(seed=st.integers(0, 2**32 - 1), lines=st.integers(4994, 12000), low=st.sampled_from([-7, 5, 6, 7]))
@settings(max_examples=15)
def test_chunks_add_up_where_the_whole_saturates(seed, lines, low):
    rng = np.random.default_rng(seed)
    weights = rng.integers(low, 7, (lines, 2), endpoint=True).astype(np.int8)
    weights[:, 0] = 7
    x = rng.integers(14, 15, (2, lines), endpoint=True).astype(np.uint8)
    x[0] = 15
    wide = twin.product_wide(x, weights)
    whole = layer(weights)
    chunks = split_lines(whole.weights)
    parts = [CompiledLayer(layer(weights[chunk])).run(x[:, chunk]).astype(np.int64) for chunk in chunks]
    assert len(chunks) == -(-lines // 4993)
    assert np.array_equal(sum(parts), wide)
    assert not np.array_equal(CompiledLayer(whole).run(x), wide)  # the control: without chunks it is wrong


def test_the_longest_layer_and_lines_beyond_it():
    stops = [chunk.stop for chunk in split_lines(np.full((57334, 1), -7, np.int8))]
    assert stops == [*range(4993, 57334, 4993), 57334]
    # Lines without weight cannot saturate, but a layer has a limit of its own.
    assert split_lines(np.zeros((57335, 1), np.int8)) == [slice(0, 57334), slice(57334, 57335)]
    assert split_lines(np.zeros((5, 1), np.int8), max_lines=2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
