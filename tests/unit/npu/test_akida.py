"""The device over the vendor's documented interface, exercised with a small stand-in that knows nothing else."""

import enum
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from metalforge.core import PluginError, SpecError
from metalforge.substrates.npu import akida_
from metalforge.substrates.npu.akida_ import AkidaDevice
from metalforge.substrates.npu.conformance import Report, compare, random_inputs, random_program
from metalforge.substrates.npu.device import NpuDevice, NpuError, ResourceError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Activation, FullyConnected, Program, ProgramError
from metalforge.substrates.profiles import load_profile
from reference.faulty_npu import BitFlip, FaultyDevice

SEED = 23


class InputData:
    def __init__(self, input_shape, input_bits=4, name=""):
        assert len(input_shape) == 3
        self.shape, self.bits, self.name = input_shape, input_bits, name


class FakeFullyConnected:
    def __init__(self, units, name="", weights_bits=1, activation=True, act_bits=1):
        self.units, self.name, self.bits, self.activation, self.act_bits = (
            units,
            name,
            weights_bits,
            activation,
            act_bits,
        )

    def attach(self, inputs):
        self.variables = {
            "weights": np.zeros((1, 1, inputs, self.units), np.int8),
            "threshold": np.zeros(self.units, np.int32),
            "act_step": np.ones(self.units, np.float32),
        }

    def set_variable(self, name, values):
        known = self.variables[name]
        if values.dtype != known.dtype or values.shape != known.shape:
            raise ValueError("Unexpected tensor")
        self.variables[name] = values.copy()

    def get_variable(self, name):
        return self.variables[name].copy()

    def forward(self, x):
        w = self.variables["weights"][0, 0].astype(np.int64)
        potentials = np.clip(x.astype(np.int64) @ w, -(1 << 19), (1 << 19) - 1)
        if not self.activation:
            return potentials.astype(np.int32)
        steps = np.floor(self.variables["act_step"].astype(np.float64) * 16) / 16 * 2 ** (4 - self.act_bits)
        levels = np.ceil((potentials - self.variables["threshold"]) / steps)
        return np.clip(levels, 0, (1 << self.act_bits) - 1).astype(np.uint8)


class Model:
    def __init__(self):
        self.layers, self.device = [], None

    def add(self, layer):
        if layer.name in [other.name for other in self.layers]:
            raise ValueError("duplicate name")
        if isinstance(layer, FakeFullyConnected):
            before = self.layers[-1]
            layer.attach(before.shape[2] if isinstance(before, InputData) else before.units)
        self.layers.append(layer)

    def get_layer(self, name):
        return next(layer for layer in self.layers if layer.name == name)

    def forward(self, x):
        assert x.dtype == np.uint8
        assert x.shape[1:3] == (1, 1)
        if x.max() > (1 << self.layers[0].bits) - 1:
            raise RuntimeError("Input values must be in the range")
        values = x[:, 0, 0]
        for layer in self.layers[1:]:
            values = layer.forward(values)
        return values[:, None, None]

    def map(self, device, hw_only=False):
        assert hw_only, "nothing may fall back to the CPU"
        if len(self.layers) > 23:
            raise RuntimeError("too many layers")
        self.device = device


class ClockMode(enum.Enum):
    Performance = 1
    Economy = 2
    LowPower = 3


class Board:
    desc = "PCIe/NSoC_v2/0"

    def __init__(self):
        self.readings, self.unprogrammed = [], 0
        meter = SimpleNamespace(floor=900.0, events=lambda: self.readings)
        self.soc = SimpleNamespace(clock_mode=ClockMode.Performance, power_measurement_enabled=False, power_meter=meter)

    def unprogram(self):
        self.unprogrammed += 1


@pytest.fixture
def sdk(monkeypatch):
    """A stand-in for the package, with the documented calls only; `sdk.boards` are the boards it sees."""
    module = ModuleType("akida")
    module.boards = []
    module.devices = lambda: module.boards
    module.InputData, module.FullyConnected, module.Model = InputData, FakeFullyConnected, Model
    monkeypatch.setitem(sys.modules, "akida", module)
    return module


def linear(name="res"):
    weights = np.random.default_rng(SEED).integers(-7, 8, (20, 6)).astype(np.int8)
    return Program(name="p", layers=(FullyConnected(name=name, weights=weights),))


X = np.random.default_rng(SEED).integers(0, 16, (3, 20)).astype(np.uint8)


def test_it_keeps_the_protocol_and_agrees_with_the_emulator(sdk):
    device = AkidaDevice()
    assert isinstance(device, NpuDevice)
    assert device.where == "simulator"
    report = compare(EmulatedDevice(), device, seed=SEED, n=48)
    assert report == Report(seed=SEED, passed=48)
    assert report.ok
    assert str(report) == f"PASS: 48 of 48 programs agree (seed {SEED})"


def test_single_batch_linear_and_variables(sdk):
    with AkidaDevice() as device:
        device.load(linear("input"))  # the name the input layer would have had
        assert device.slots() == ("main",)
        wanted = X.astype(int) @ linear().layers[0].weights.astype(int)
        assert np.array_equal(device.infer_linear(X), wanted)
        assert np.array_equal(device.infer(X[1]), wanted[1])
        steps = np.full(6, 2.5, np.float32)
        device.set_variable("input/act_step", steps)
        assert np.array_equal(device.get_variable("input/act_step"), steps)
        assert np.array_equal(device.infer_linear(X), wanted)  # no activation: no step
        new = np.ones((20, 6), np.int8)
        device.set_variable("input/weights", new)
        assert np.array_equal(device.get_variable("input/weights"), new)
        assert np.array_equal(device.infer(X), np.repeat(X.astype(int).sum(1)[:, None], 6, 1))
        done = device.statistics()
        assert (done.calls, done.inferences, done.loads, done.weight_updates) == (4, 10, 1, 2)
        assert done.busy is None
        assert done.energy is None
    with pytest.raises(NpuError, match="no program"):
        device.infer(X)


def test_our_rules_speak_first_and_the_packages_refusals_are_wrapped(sdk, monkeypatch):
    device = AkidaDevice()
    device.load(linear())
    with pytest.raises(ProgramError, match=r"uint8. Got float64"):
        device.infer(X.astype(float))
    with pytest.raises(ProgramError, match=r"-7 .. 7. Got 8"):
        device.set_variable("res/weights", np.full((20, 6), 8, np.int8))
    with pytest.raises(ProgramError, match="no layer"):
        device.get_variable("nothing/weights")
    relu = FullyConnected(name="r", weights=np.ones((4, 2), np.int8), activation=Activation.BOUNDED_RELU)
    device.load(Program(name="p", layers=(relu,)))
    with pytest.raises(NpuError, match="ReLU"):
        device.infer_linear(np.zeros(4, np.uint8))

    def refuse(self, x):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(Model, "forward", refuse)
    with pytest.raises(NpuError, match=r"simulator.* no such luck") as caught:
        device.infer(np.zeros(4, np.uint8))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_board_is_preferred_and_programs_must_fit_it_whole(sdk):
    sdk.boards = [Board()]
    device = AkidaDevice()
    assert device.where == "PCIe/NSoC_v2/0"
    device.load(linear())
    assert device._model.device is sdk.boards[0]
    layers = tuple(
        FullyConnected(name=f"l{i}", weights=np.ones((4, 4), np.int8), activation=Activation.BOUNDED_RELU)
        for i in range(23)
    )
    with pytest.raises(ResourceError, match=r"`long`.*PCIe(.|\n)*layers(.|\n)*hint: "):
        device.load(Program(name="long", layers=layers))
    assert np.array_equal(device.infer(X), X.astype(int) @ linear().layers[0].weights.astype(int))
    device.unload()
    assert sdk.boards[0].unprogrammed == 1
    assert AkidaDevice("simulator").where == "simulator"
    with pytest.raises(NpuError, match=r"below 1(.|\n)*Got 1"):
        AkidaDevice(1)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "akida", None)
    with pytest.raises(PluginError, match=r"pip install 'metalforge\[npu\]'"):
        AkidaDevice()


def test_conformance_finds_a_device_that_rounds_down(sdk, monkeypatch):
    def floored(self, x):
        potentials = x.astype(np.int64) @ self.variables["weights"][0, 0].astype(np.int64)
        return np.clip(potentials, 0, 15).astype(np.uint8 if self.activation else np.int32)

    monkeypatch.setattr(FakeFullyConnected, "forward", floored)
    report = compare(EmulatedDevice(), AkidaDevice(), seed=SEED, n=24)
    assert not report.ok
    assert report.failed + report.passed == 24
    assert report.failed > 12
    assert str(report).startswith("FAIL")


def test_conformance_finds_one_flipped_bit_and_one_refusal():
    # Each case makes three calls: number 8 is the second of case 2, a single vector; its damage stays for the third.
    flipped = FaultyDevice(faults=(BitFlip(at=8, bits=200),), seed=1)
    assert compare(EmulatedDevice(), flipped, seed=SEED, n=6).differ == (2,)
    closed = EmulatedDevice()
    closed.close()
    assert compare(EmulatedDevice(), closed, seed=SEED, n=3).refused == (0, 1, 2)
    nothing = compare(closed, closed, seed=SEED, n=3)
    assert (nothing.passed, nothing.skipped, nothing.ok) == (0, 3, False)


def test_conformance_cases_cover_the_chip():
    programs = [random_program(SEED, case) for case in range(48)]
    layers = [layer for program in programs for layer in program.layers]
    assert {layer.weight_bits for layer in layers} == {1, 2, 4}
    assert {layer.input_bits for layer in layers} == {1, 2, 4}
    assert {len(program.layers) for program in programs} == {1, 2, 3}
    assert {program.layers[-1].activation for program in programs} == set(Activation)
    # Outputs of rectifying layers are not all at the ends.
    device, levels = EmulatedDevice(), []
    for case, program in enumerate(programs):
        if program.layers[-1].activation_bits == 4 and program.layers[-1].activation is Activation.BOUNDED_RELU:
            device.load(program)
            levels += device.infer(random_inputs(program, SEED, case)).ravel().tolist()
    assert set(levels) == set(range(16))
    assert sum(0 < level < 15 for level in levels) > len(levels) / 3


@pytest.mark.npu
def test_the_vendors_simulator_agrees_with_the_emulator():
    pytest.importorskip("akida")
    report = compare(EmulatedDevice(), AkidaDevice("simulator"), seed=SEED, n=100)
    # Only whether it agreed: what the package gave stays with its user.
    assert report.ok


@pytest.mark.npu
def test_the_vendors_package_lists_its_boards():
    pytest.importorskip("akida")
    assert isinstance(akida_.device_names(), list)


class TestPrivateProfile:
    """A profile from the user's own package, written outside any source tree."""

    @staticmethod
    def fake(monkeypatch, types):
        package = SimpleNamespace(
            AKD1000=lambda: SimpleNamespace(mesh=SimpleNamespace(nps=[SimpleNamespace(types=t) for t in types]))
        )
        monkeypatch.setitem(sys.modules, "akida", package)

    def test_it_holds_what_the_package_says(self, monkeypatch, tmp_path):
        self.fake(monkeypatch, ["CNP1", "CNP1 FNP3", "CNP1 FNP3", "FNP2"])
        akida_.write_sdk_profile(tmp_path / "mine.toml")
        profile = load_profile(tmp_path / "mine.toml")
        assert (profile.name, profile.mesh.neural_processors.value) == ("mine", 4)
        assert profile.mesh.onchip_processors.value == 2
        assert "own akida package" in profile.mesh.external_processors.source

    def test_a_source_tree_is_refused(self, monkeypatch):
        self.fake(monkeypatch, ["FNP3", "FNP2"])
        with pytest.raises(SpecError, match="source tree"):
            akida_.write_sdk_profile(Path(__file__).parent / "mine.toml")

    def test_a_mesh_without_processors_is_refused(self, monkeypatch, tmp_path):
        self.fake(monkeypatch, ["CNP1"])
        with pytest.raises(PluginError, match="0 onchip processors"):
            akida_.write_sdk_profile(tmp_path / "mine.toml")
        assert not (tmp_path / "mine.toml").exists()
