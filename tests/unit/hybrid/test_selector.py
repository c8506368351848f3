"""A network goes where the plan and the machine say."""

import numpy as np
import pytest

from metalforge.core.substrate import Kind, SubstrateInfo
from metalforge.hybrid import OperationRouter, select_substrate
from metalforge.hybrid.esn import selector
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu import EmulatedDevice


@pytest.fixture
def weights():
    return make_esn(64, 10, seed=1, connectivity=1.0)


@pytest.fixture
def data():
    return np.random.default_rng(0).uniform(-1, 1, (30, 10))


def test_without_a_board_it_is_software(weights, monkeypatch):
    monkeypatch.setattr(selector, "_board", lambda: None)
    chosen = select_substrate(weights)
    assert chosen.substrate == "software"
    assert "no NPU" in chosen.reason
    assert chosen.esn.mode == "software"


def test_a_device_at_hand_is_used_only_where_it_pays(weights, data):
    quick = select_substrate(weights, device=EmulatedDevice(), calibration=data)
    assert quick.esn.mode == "software"
    assert "quicker" in quick.reason
    router = OperationRouter(objective="hw_only")
    forced = select_substrate(weights, router=router, device=EmulatedDevice(), calibration=data)
    assert forced.esn.mode == "hardware-linear"
    assert forced.esn.precision.endswith("A8")
    assert np.abs(forced.esn.run(data) - quick.esn.run(data)).max() < 0.1


def test_a_board_that_is_found_is_opened(weights, data, monkeypatch):
    board = SubstrateInfo(
        kind=Kind.NPU, name="akida0", model="AKD1000", capabilities=(), properties={"emulated": False}
    )
    monkeypatch.setattr(selector, "_board", lambda: board)
    monkeypatch.setattr(selector, "_open_board", EmulatedDevice)
    chosen = select_substrate(weights, router=OperationRouter(objective="hw_only"), calibration=data)
    assert chosen.substrate == "akida0"
    assert chosen.esn.mode == "hardware-linear"
