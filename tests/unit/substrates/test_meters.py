from types import SimpleNamespace

import pytest

from metalforge.core import (
    EnergyMeter,
    Measured,
    MeterUnavailableError,
    Modelled,
)
from metalforge.substrates import ModelledMeter, NvmlMeter, RaplMeter


def powercap(tmp_path, **zones):
    for name, microjoules in zones.items():
        zone = tmp_path / name.replace("_", ":").replace("rapl", "intel-rapl")
        zone.mkdir(exist_ok=True)
        (zone / "energy_uj").write_text(f"{microjoules}\n")
        (zone / "max_energy_range_uj").write_text("1000000\n")
    return tmp_path


def test_rapl_sums_packages_and_leaves_their_parts_out(tmp_path):
    meter = RaplMeter(powercap(tmp_path, rapl_0=100, rapl_1=200, rapl_0_0=50))
    powercap(tmp_path, rapl_0=600_100, rapl_1=400_200, rapl_0_0=999_999)
    assert meter.total() == Measured(value=1.0, unit="J", how="RAPL package counters, whole socket")


def test_rapl_undoes_a_wrap(tmp_path):
    meter = RaplMeter(powercap(tmp_path, rapl_0=900_000))
    powercap(tmp_path, rapl_0=100_000)
    assert meter.total().value == pytest.approx(0.2)
    powercap(tmp_path, rapl_0=300_000)
    assert meter.total().value == pytest.approx(0.4)


def test_rapl_says_when_there_is_none(tmp_path):
    meter = RaplMeter(tmp_path / "nothing")
    assert "virtual machines" in meter.unavailable()
    with pytest.raises(MeterUnavailableError, match="RAPL package"):
        meter.total()


def test_rapl_says_when_it_may_not_read(tmp_path):
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir(parents=True)  # a directory cannot be read as a file, even by root
    assert "cannot be read" in RaplMeter(tmp_path).unavailable()


class FakeNvml:
    """What NvmlMeter uses of pynvml: a counter in millijoules."""

    def __init__(self, readings):
        self._readings = iter(readings)

    def nvmlInit(self):  # noqa: N802 - the library's name
        pass

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return SimpleNamespace(index=index)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return next(self._readings)


def test_nvml_counts_millijoules():
    meter = NvmlMeter(1, nvml=FakeNvml([5_000, 7_500]))
    assert meter.unavailable() is None
    assert meter.total() == Measured(value=2.5, unit="J", how="NVML total energy counter, whole device")


def test_nvml_without_a_device_or_after_it_vanished_says_so():
    never = NvmlMeter(0, nvml=SimpleNamespace(nvmlInit=lambda: 1 / 0))
    assert "ZeroDivisionError" in never.unavailable()
    with pytest.raises(MeterUnavailableError, match="nvml:0"):
        never.total()
    vanished = NvmlMeter(0, nvml=FakeNvml([1]))
    with pytest.raises(MeterUnavailableError, match="nvml:0: StopIteration"):
        vanished.total()


def test_a_modelled_meter_multiplies_power_by_time():
    now = iter([10.0, 14.0])
    meter = ModelledMeter(profile="akd1000-published", power_w=0.918, clock=lambda: next(now))
    assert meter.total() == Modelled(value=pytest.approx(3.672), unit="J", profile="akd1000-published")


def test_all_follow_the_protocol(tmp_path):
    for meter in (RaplMeter(tmp_path), NvmlMeter(0, nvml=FakeNvml([1])), ModelledMeter(profile="p", power_w=1.0)):
        assert isinstance(meter, EnergyMeter)
