"""Fifty features with names: known when they are said to be, never what a label is made of."""

import numpy as np
import pytest

from metalforge.conductor.features import FEATURES, LARGEST, ChainContext, FrameBuilder, MetaRow, ObservedUpdate, scaled
from metalforge.core.errors import SpecError, UnknownNameError

CONTEXT = ChainContext(beta=5.69, dims=(8, 8, 8, 4))


def trajectory(i, **more):
    rng = np.random.default_rng(i)
    values = {
        "phase": "measure",
        "plaquette_spatial": 0.55 + 0.003 * rng.normal(),
        "plaquette_temporal": 0.552 + 0.003 * rng.normal(),
        "delta_h": rng.normal(),
        "delta_h_quarter": rng.normal(),
        "accepted": bool(rng.integers(2)),
        "step_size": 0.1,
        "n_steps": 10,
        "cg_iterations": float(rng.integers(50, 80)),
    }
    return ObservedUpdate(**(values | more))


def test_there_are_fifty_with_names_of_their_own():
    assert len(FEATURES) == 50
    assert FEATURES.name == "metalforge-features-1"
    names = [f.name for f in FEATURES.features]
    assert len(set(names)) == 50


def test_nothing_that_defines_a_label_is_among_them():
    names = {f.name for f in FEATURES.features}
    assert not any("polyakov" in name or "order" in name for name in names)
    assert "accepted" not in names
    assert "cg_iterations" not in names


def test_the_outcome_of_a_trajectory_is_not_in_its_own_frame():
    """The same trajectory with the other outcome and other solves gives the same frame, and another one after it."""
    for change in ({"accepted": True}, {"cg_iterations": 999.0}, {"delta_h": 40.0}):
        one, two = FrameBuilder(CONTEXT), FrameBuilder(CONTEXT)
        for i in range(5):
            one.push(trajectory(i))
            two.push(trajectory(i))
        first = trajectory(5, accepted=False)
        assert one.push(first) == two.push(trajectory(5, **({"accepted": False} | change)))
        assert one.push(trajectory(6)) != two.push(trajectory(6))


def test_every_frame_has_known_names_and_finite_numbers():
    builder = FrameBuilder(CONTEXT, [MetaRow(beta=5.6, plaquette=0.52, susceptibility=0.4)])
    assert scaled(builder.before("quench")).shape == (50,)
    for i in range(40):
        row = scaled(builder.push(trajectory(i)))
        assert np.all(np.isfinite(row))
        assert np.abs(row).max() <= LARGEST


def test_window_statistics_are_those_of_the_trajectories_before():
    builder = FrameBuilder(CONTEXT)
    past = [trajectory(i) for i in range(40)]
    for one in past:
        builder.push(one)
    frame = builder.push(trajectory(40))
    seen = np.array([t.plaquette for t in past[-32:]])
    assert frame["mean_long"] == pytest.approx(seen.mean())
    assert frame["std_long"] == pytest.approx(seen.std())
    assert frame["mean_short"] == pytest.approx(seen[-8:].mean())
    assert frame["halves"] == pytest.approx(seen[16:].mean() - seen[:16].mean())
    assert frame["acceptance_long"] == pytest.approx(np.mean([t.accepted for t in past[-32:]]))
    assert frame["accepted_before"] == float(past[-1].accepted)
    line = np.polyfit(np.linspace(-0.5, 0.5, 32), seen, 1)[0]
    assert frame["slope_long"] == pytest.approx(line)


def test_what_is_not_known_is_zero_and_flagged():
    heatbath = trajectory(0, delta_h=None, delta_h_quarter=None, accepted=None, step_size=None, n_steps=None)
    builder = FrameBuilder(CONTEXT)
    builder.push(heatbath)
    frame = builder.push(heatbath)
    row = dict(zip([f.name for f in FEATURES.features], scaled(frame), strict=True))
    assert row["has_hmc"] == row["has_quarter"] == 0
    assert row["delta_h_before"] == row["step_size"] == 0
    assert row["has_meta"] == 0
    assert row["below_distance"] == 0


def test_meta_rows_are_the_nearest_on_each_side():
    meta = [MetaRow(beta=b, plaquette=b / 10, susceptibility=b) for b in (5.5, 5.65, 5.8, 6.0)]
    frame = FrameBuilder(CONTEXT, meta).before("warmup")
    assert frame["below_distance"] == pytest.approx(0.04)
    assert frame["above_plaquette"] == pytest.approx(0.58)


def test_wrong_frames_are_refused():
    with pytest.raises(UnknownNameError, match="plaquete"):
        scaled({"plaquete": 0.5})
    with pytest.raises(SpecError, match="finite"):
        scaled({"plaquette": float("nan")})
