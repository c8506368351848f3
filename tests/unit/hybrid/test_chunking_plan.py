"""Plans of chunks: what fits goes to the device, the rest where it was said, and every figure is modelled."""

import numpy as np
import pytest
from msgspec.structs import replace

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Modelled
from metalforge.hybrid.esn.chunks import plan_chunks
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.matrices import random_matrix
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.costs import cost
from metalforge.substrates.npu.device import image_bytes
from metalforge.substrates.profiles import profile


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(1)  # scaled by hand: eigenvalues of 600 units take longer than all plans
    w_res = random_matrix(rng, 600, 600, connectivity=0.05, kind="csr") / 6
    return EsnWeights(w_in=rng.uniform(-1, 1, (600, 1)), w_res=w_res)


def test_what_fits_goes_to_the_device_and_the_rest_to_software(weights):
    plan = plan_chunks(weights, chunk_units=20)
    assert plan.device_units == 22 * 20  # 18 on-chip processors and 4 with external memory
    assert [chunk.place for chunk in plan.chunks] == ["device"] * 22 + ["software"] * 8
    processors = [p for chunk in plan.chunks[:22] for p in chunk.processors]
    assert len(set(processors)) == 22
    assert plan.swaps.reloads == 0


def test_the_device_figure_is_the_sum_of_the_programs_calls(weights):
    plan = plan_chunks(weights, chunk_units=50, precision="W4A8")
    wanted = sum(cost(p, 2, "akd1000-published").latency.value for c in plan.chunks for p in c.compiled.programs)
    assert plan.device.latency.value == pytest.approx(wanted)
    assert isinstance(plan.device.latency, Modelled)
    assert plan.device.latency.profile == "akd1000-published"
    assert plan.chunks[0].bytes == image_bytes(plan.chunks[0].compiled.program)


def test_without_a_size_the_cheapest_of_a_few_is_taken(weights):
    best = plan_chunks(weights)
    for size in (100, 150, 200, 300, 600):
        other = plan_chunks(weights, chunk_units=size)
        assert best.device.latency.value <= other.device.latency.value


def test_profiles_change_the_plan(weights):
    claimed = plan_chunks(weights, "akd1000-claimed", chunk_units=100)
    assert claimed.device_units == 500  # five programs of 179 NPs among 1000
    assert claimed.device.latency.value == pytest.approx(5 * 2 * 54e-6)
    swapped = plan_chunks(weights, "akd1000-claimed", chunk_units=100, overflow="swap")
    assert swapped.device_units == 600
    assert swapped.swaps.reloads == 1
    # The claims have no figure for transfers, so a step with reloads has none either; it is not called free.
    assert swapped.device.latency is None
    assert "nothing of transfers" in swapped.device.unknown


def test_a_plan_explains_itself(weights):
    text = str(plan_chunks(weights, chunk_units=20, device_units=60, overflow="swap"))
    lines = text.splitlines()
    assert lines[0].startswith("600 units in 30 chunks: 60 on akd1000-published at W4A8")
    assert lines[1].split() == ["chunk", "place", "programs", "processors", "bytes", "a", "step", "why"]
    assert "on-chip 0" in lines[2]
    assert "beyond the rows asked for" in lines[6]
    assert "device, per step:" in text
    assert "(modelled: akd1000-published)" in text
    assert "host, per step:" in text
    swapped = str(plan_chunks(weights, chunk_units=20, overflow="swap"))
    assert "reloads, per step: 8 programs" in swapped
    assert "by turns" in swapped


def with_mesh(**counts):
    """The published chip with other numbers of processors, or another size of them."""
    chip = profile("akd1000-published")
    changed = {name: replace(getattr(chip.mesh, name), value=value) for name, value in counts.items()}
    return replace(chip, mesh=replace(chip.mesh, **changed))


def test_a_smaller_chip_takes_fewer_chunks_or_more_turns():
    weights = make_esn(200, 1, seed=1)
    tiny = with_mesh(external_processors=1, onchip_bytes=64)  # nothing fits on chip, one chunk in external memory
    assert plan_chunks(weights, tiny, chunk_units=100).device_units == 100
    swapped = plan_chunks(weights, tiny, chunk_units=50, overflow="swap")
    assert swapped.device_units == 200
    assert swapped.swaps.reloads == 3
    with pytest.raises(SpecError, match="software or swap"):
        plan_chunks(weights, overflow="disk")
