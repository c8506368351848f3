"""However rows are cut into blocks, the frames are the same, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.conductor.features import ChainContext, FrameMaker

NAMES = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")
MORE = ("delta_h", "delta_h_quarter", "accepted", "n_steps", "cg_iterations")


@settings(max_examples=25, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 70), max_size=12),
    seed=st.integers(0, 99),
    algorithm=st.sampled_from(["heatbath", "hmc"]),
    flavors=st.sampled_from([0, 4]),
)
def test_cutting_into_blocks_changes_no_bit(cuts, seed, algorithm, flavors):
    rng = np.random.default_rng(seed)
    names = NAMES if algorithm == "heatbath" else (*NAMES, *MORE)
    columns = {name: 0.5 + 0.1 * rng.standard_normal(150) for name in names}
    context = ChainContext(beta=5.1, dims=(4, 4, 4, 2), algorithm=algorithm, flavors=flavors, mass=0.1 * flavors)
    whole = FrameMaker(context).push("warmup", columns)
    maker = FrameMaker(context)
    ends = [*sorted(min(c, 150) for c in np.cumsum(cuts)), 150]
    parts = [
        maker.push("warmup", {name: values[begin:end] for name, values in columns.items()})
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    assert maker.count == 150
    assert np.array_equal(np.concatenate([p.rows for p in parts]), whole.rows)
    assert np.array_equal(np.concatenate([p.values for p in parts]), whole.values)
