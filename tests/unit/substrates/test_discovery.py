import builtins
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest

from metalforge import native
from metalforge.core import Kind, PlacementError, QuantizedInference, Trait
from metalforge.core.substrate import spelled
from metalforge.substrates import cpu, cuda_, discover, npu
from metalforge.substrates.npu import discovery
from metalforge.testing import check_substrate


def test_this_machine_has_a_cpu_first_and_always_the_emulated_npu():
    found = discover()
    assert found.substrates[0].info.kind is Kind.CPU
    assert "akd1000-emulated" in [s.info.name for s in found.substrates]
    assert len({s.info.name for s in found.substrates}) == len(found.substrates)


def test_everything_missing_comes_with_a_reason():
    for missing in discover().missing:
        assert missing.what
        assert missing.reason


def test_every_discovered_substrate_keeps_the_contract():
    substrates = discover().substrates
    assert substrates
    for substrate in substrates:
        check_substrate(substrate)


def test_cpu_facts_from_a_described_machine(tmp_path):
    (tmp_path / "cpuinfo").write_text("model name\t: Imaginary 9000\ncpu MHz\t\t: 2500.0\n")
    cache = tmp_path / "devices/system/cpu/cpu0/cache"
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    ):
        folder = cache / f"index{index}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(value + "\n")
    info = cpu.CpuSubstrate(proc=tmp_path, sys=tmp_path).info
    assert info.model == "Imaginary 9000"
    assert info.properties["l1d_bytes"] == 48 * 1024
    assert info.properties["l2_bytes"] == 2 * 2**20
    assert info.properties["clock_hz"] == 2.5e9
    assert "l1_bytes" not in info.properties


def test_a_machine_that_tells_nothing_still_has_a_cpu(tmp_path):
    substrate = cpu.CpuSubstrate(proc=tmp_path, sys=tmp_path)
    assert substrate.info.properties["cores"] >= 1
    check_substrate(substrate)


def board(tmp_path, slot, vendor="0x1e7c", device="0xbca1"):
    folder = tmp_path / "bus/pci/devices" / slot
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "device").write_text(device + "\n")


def test_akida_boards_are_found_by_pci_id(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    board(tmp_path, "0000:01:00.0")
    board(tmp_path, "0000:02:00.0", device="0xa500")
    board(tmp_path, "0000:03:00.0", vendor="0x10de")
    (tmp_path / "akida0").touch()
    found = npu.discover(sys=tmp_path, dev=tmp_path)
    physical = [s.info for s in found.substrates if not s.info.properties["emulated"]]
    assert [(i.name, i.model) for i in physical] == [("akida0", "BrainChip AKD1000"), ("akida1", "BrainChip AKD1500")]
    assert physical[0].properties["device_node"] == str(tmp_path / "akida0")
    assert Trait.PCIE_TRANSFER in physical[0].capabilities


def test_a_board_without_the_sdk_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("metalforge.substrates.npu.discovery.find_spec", lambda name: None)
    board(tmp_path, "0000:01:00.0")
    found = npu.discover(sys=tmp_path, dev=tmp_path)
    assert [m.remedy for m in found.missing] == ["pip install 'metalforge[npu]'"]


def test_a_device_node_alone_is_enough(tmp_path):
    (tmp_path / "akida0").touch()
    names = [s.info.name for s in npu.discover(sys=tmp_path, dev=tmp_path).substrates]
    assert names == ["akida0", "akd1000-emulated"]


def fake_akida(monkeypatch, devices):
    module = ModuleType("akida")
    module.devices = devices
    monkeypatch.setitem(sys.modules, "akida", module)
    monkeypatch.setattr("metalforge.substrates.npu.discovery.find_spec", lambda name: SimpleNamespace())


def test_the_sdk_is_asked_for_its_list(tmp_path, monkeypatch):
    fake_akida(monkeypatch, lambda: [SimpleNamespace(desc="PCIe/NSoC_v2/0")])
    found = npu.discover(sys=tmp_path, dev=tmp_path)
    assert found.substrates[0].info.model == "PCIe/NSoC_v2/0"


def test_a_broken_sdk_is_a_finding(tmp_path, monkeypatch):
    fake_akida(monkeypatch, lambda: 1 / 0)
    found = npu.discover(sys=tmp_path, dev=tmp_path)
    assert [s.info.name for s in found.substrates] == ["akd1000-emulated"]
    assert "ZeroDivisionError" in found.missing[0].reason


def test_the_chip_has_no_floating_point():
    capabilities = discovery.emulated_npu().info.capabilities
    assert not {Trait.F32, Trait.F64} & set(capabilities)
    assert QuantizedInference(bits=frozenset({1, 2, 4, 8})) in capabilities


class NoAnswerError(Exception):
    pass


def fake_nvml(**answers):
    facts = {
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetName": lambda h: b"NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=150_754_820_096),
        "nvmlDeviceGetPowerManagementLimit": lambda h: 700_000,
        "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
        "nvmlDeviceGetNumGpuCores": lambda h: 132 * 128,
        "nvmlDeviceGetMaxClockInfo": lambda h, kind: {"sm": 1980, "mem": 3201}[kind],
        "nvmlDeviceGetMemoryBusWidth": lambda h: 6016,
    }
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        NVMLError=NoAnswerError,
        NVML_CLOCK_SM="sm",
        NVML_CLOCK_MEM="mem",
        **(facts | answers),
    )


def use_modules(monkeypatch, **modules):
    monkeypatch.setattr(cuda_, "find_spec", lambda name: SimpleNamespace() if name in modules else None)
    monkeypatch.setattr(cuda_.importlib, "import_module", lambda name: modules[name])


def test_gpu_facts_from_nvml(monkeypatch):
    use_modules(monkeypatch, pynvml=fake_nvml())
    found = cuda_.discover()
    info = found.substrates[0].info
    assert (info.name, info.model) == ("cuda:0", "NVIDIA H200")
    assert info.properties["power_limit_w"] == 700.0
    # Datasheet of the SXM part: 67 TFLOP/s single precision, half of it double, 4.8 TB/s.
    assert info.properties["fp32_flops_per_s"] == pytest.approx(67e12, rel=0.01)
    assert info.properties["fp64_ratio"] == 2
    assert info.properties["bandwidth_bytes_per_s"] == pytest.approx(4.8e12, rel=0.01)
    assert [m.what for m in found.missing] == ["cupy"]


def test_a_gpu_that_answers_little_is_still_listed(monkeypatch):
    def refuse(*_):
        raise NoAnswerError

    silent = {
        f"nvmlDeviceGet{question}": refuse
        for question in ("PowerManagementLimit", "CudaComputeCapability", "NumGpuCores", "MaxClockInfo")
    }
    use_modules(monkeypatch, pynvml=fake_nvml(**silent))
    (gpu,) = cuda_.discover().substrates
    assert "fp32_flops_per_s" not in gpu.info.properties
    check_substrate(gpu)


def test_cupy_is_asked_when_nvml_is_not_there(monkeypatch):
    facts = {"major": 8, "minor": 6, "totalGlobalMem": 24 * 2**30, "multiProcessorCount": 82, "memoryBusWidth": 384}
    device = SimpleNamespace(attributes={"ClockRate": 1_695_000, "MemoryClockRate": 9_751_000})
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDeviceProperties=lambda i: facts | {"name": b"RTX 3090"})
    use_modules(monkeypatch, cupy=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=lambda i: device)))
    info = cuda_.discover().substrates[0].info
    assert info.model == "RTX 3090"
    assert info.properties["fp64_ratio"] == 64
    assert info.properties["fp32_flops_per_s"] == pytest.approx(35.6e12, rel=0.01)  # datasheet
    assert info.properties["bandwidth_bytes_per_s"] == pytest.approx(936e9, rel=0.01)  # datasheet


def test_no_gpu_names_the_reason_and_the_extra(monkeypatch, tmp_path):
    broken = SimpleNamespace(nvmlInit=lambda: 1 / 0)
    use_modules(monkeypatch, pynvml=broken)
    found = cuda_.discover(proc=tmp_path)
    assert not found.substrates
    assert "ZeroDivisionError" in found.missing[0].reason
    assert "no NVIDIA driver" in found.missing[0].reason
    assert "metalforge[cuda]" in found.missing[0].remedy


def test_discovery_imports_no_device_library_on_a_machine_without_devices(monkeypatch):
    real = builtins.__import__

    def guarded(name, *rest, **more):
        assert name.split(".")[0] not in {"torch", "ray", "starlette"}, name
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert discover().substrates


def test_the_cpu_opens_an_engine_and_says_who_has_none(monkeypatch):
    engine = cpu.CpuSubstrate().open_engine(threads=1)
    assert (engine.name, engine.threads) == (f"cpu:{native.level()}", 1)
    card = cuda_.CudaSubstrate(1, "a card", {})
    monkeypatch.setattr("metalforge.native.cuda.engine.find_spec", lambda name: None)
    with pytest.raises(PlacementError, match=r"(?s)cuda:1 needs cupy.*hint: .*metalforge\[cuda\]"):
        card.open_engine()
    with pytest.raises(PlacementError, match="akd1000-emulated"):
        discovery.emulated_npu().open_engine()


@pytest.mark.parametrize(("old", "new"), [("cpu0", "cpu:0"), ("cuda12", "cuda:12"), ("cpu:0", "cpu:0"), ("npu", "npu")])
def test_names_of_early_files_are_read_as_they_are_spelled_now(old, new):
    assert spelled(old) == new
