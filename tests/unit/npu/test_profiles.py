"""Device profiles: data files with a source for every number, read strictly; a user's own chip is one more file."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from metalforge.core import SpecError, UnknownNameError
from metalforge.substrates import profiles
from metalforge.substrates.npu import discovery
from metalforge.substrates.npu.costs import cost
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.mesh import plan
from metalforge.substrates.npu.program import FullyConnected, Program
from metalforge.substrates.profiles import PROFILES, load_profile, profile

FILE = Path(profiles.__file__).parent / "npu/profiles/akd1000-published.toml"
TEXT = FILE.read_text()


def small(width=8):
    return Program(name="p", layers=(FullyConnected(name="l", weights=np.ones((8, width), np.int8)),))


def test_two_profiles_ship_and_published_comes_first():
    assert list(PROFILES) == ["akd1000-published", "akd1000-claimed"]


@pytest.mark.parametrize("name", list(PROFILES))
def test_every_number_has_a_source(name):
    figures = PROFILES[name].figures()
    assert len(figures) >= 11
    assert all(len(source) > 15 for _, _, source in figures)
    # No number stands in the file without a source in its table: values, rows and clock modes all have one.
    text = (FILE.parent / f"{name}.toml").read_text()
    for line in re.findall(r"^\w+ = \{.*$", text, re.MULTILINE):
        assert "source = " in line


def test_the_fields_that_discovery_shows():
    published, claimed = PROFILES.values()
    assert (
        published.mesh.neural_processors.value,
        published.mesh.layer_processors,
        published.call.max_batch.value,
    ) == (
        78,
        22,
        64,
    )
    assert (published.call.call_s.value, published.call.weight_update_s.value, published.call.power_w.value) == (
        650e-6,
        14e-3,
        0.918,
    )
    assert (claimed.mesh.neural_processors.value, claimed.mesh.layer_processors, claimed.call.call_s.value) == (
        1000,
        1000,
        54e-6,
    )
    assert discovery.emulated_npu("akd1000-published").info.properties["memory_bytes"] == 8 * 2**20


def test_profiles_are_values():
    published = PROFILES["akd1000-published"]
    assert load_profile(FILE) == published
    assert hash(load_profile(FILE)) == hash(published)
    with pytest.raises(AttributeError):
        published.name = "other"


def changed(tmp_path, old, new, name="my-chip.toml"):
    assert old in TEXT
    path = tmp_path / name
    path.write_text(TEXT.replace(old, new))
    return path


def test_a_chip_of_ones_own_is_a_file(tmp_path):
    path = changed(tmp_path, "value = 650e-6", "value = 100e-6")
    path.write_text(
        path.read_text().replace('name = "akd1000-published"', 'name = "my-chip"').replace("value = 18,", "value = 2,")
    )
    mine = profile(str(path))
    assert mine.name == "my-chip"
    assert cost(small(), profile=mine).latency.profile == "my-chip"
    assert cost(small(), profile=str(path)).latency.value == 100e-6
    assert plan(small(), mine).profile == "my-chip"
    device = EmulatedDevice(str(path))
    device.load(small())
    device.infer(np.zeros(8, np.uint8))
    assert device.statistics().energy.profile == "my-chip"
    assert mine.mesh.layer_processors == 6
    assert "my-chip" not in PROFILES


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_batch =", "max_bach =", r"unknown field `max_bach` - at `\$.call`"),
        ("chip =", "ship =", "unknown field `ship`"),
        ("layer_s = {", "layer_s = { unit = 's',", "unknown field `unit`"),
        ("value = 650e-6", "value = -1", r"Got -1.0 - at `\$.call.call_s`"),
        ("value = 650e-6", "value = nan", "Got nan"),
        ("value = 650e-6", "value = '650 us'", "Expected `float`"),
        ("value = 64,", "value = 64.5,", "Expected `int`"),
        ('source = "datasheet: whole board during inference"', 'source = " "', "`source` must say where"),
        ("[64, 779e-6], [128, 700e-6]", "[128, 700e-6], [64, 779e-6]", "rising whole numbers"),
        ("[[1, 948e-6], ", "[", "begin with a batch of 1"),
        ('accounting = "processors"', 'accounting = "neurons"', "unknown field `onchip_"),
        ('accounting = "processors"', 'accounting = "acres"', "Invalid value 'acres'"),
        ("external_processors", "# external_processors", "missing required field `external_processors`"),
        ('name = "Economy"', 'name = "Turbo"', "Invalid enum value 'Turbo'"),
        ('name = "Economy"', 'name = "LowPower"', "must be different and begin with Performance"),
        ("value = 20,", "value = 40,", r"must be 8 .. 31. Got 40"),
        ("value = 16,", "value = 3,", "must be 1, 2, 4, 8 or 16. Got 3"),
        ("[call]", "[call", "hint: start from a copy"),
        ("value = 18,", "value = 300_000_000,", r"`onchip_processors` must be at most .* Got 300000000 - at `\$.mesh`"),
        ("value = 78,", "value = 65_537,", "`neural_processors` must be at most"),
        ("value = 64,", f"value = {10**400},", r"Got 10+ - at `\$.call.max_batch`"),
        ("value = 650e-6", "value = 1e300", r"Got 1e\+300 - at `\$.call.call_s`"),
        ("value = 650e-6", "value = 1e-300", r"Got 1e-300 - at `\$.call.call_s`"),
        ("[4096, 16141e-6]", f"[4096, 16141e-6], [{10**300}, 1.0]", r"Got 10+ - at `\$.widths`"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path_and_the_key(tmp_path, old, new, message):
    path = changed(tmp_path, old, new)
    with pytest.raises(SpecError, match=message) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)


def test_a_table_that_rises_too_steeply_is_refused_where_it_would_be_continued(tmp_path):
    steep = re.sub(r"(?s)(\[widths\].*?rows = )\[\[.*?\]\]", r"\1[[10, 1e-9], [11, 1e15]]", TEXT)
    path = tmp_path / "steep.toml"
    path.write_text(steep)
    with pytest.raises(SpecError, match="`widths` rises too steeply"):
        cost(small(1 << 14), profile=load_profile(path))


def test_missing_files_and_unknown_names_are_told_apart(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        profile(str(tmp_path / "none.toml"))
    with pytest.raises(UnknownNameError, match="did you mean `akd1000-claimed`"):
        profile("akd1000-claim")


def test_profiles_survive_json():
    for p in PROFILES.values():
        assert msgspec.json.decode(msgspec.json.encode(p), type=type(p)) == p
