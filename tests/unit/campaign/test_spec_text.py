import tomllib

import msgspec
import pytest

from metalforge.campaign import spec as specs
from metalforge.campaign.report.spec_text import NOTES, TABLES, spec_text
from metalforge.campaign.spec import Budget, CampaignSpec, Running, load_spec, preset, presets
from metalforge.campaign.theory import theory_names
from metalforge.lattice.campaign import Lattice
from metalforge.plasma.campaign import Plasma

THEORIES = (Lattice, Plasma)
"""Physics, of which a spec has one."""
PLAIN = CampaignSpec(theory=Lattice())


def field_paths():
    """Give the path and the type of every field of a spec, tables apart and those of theories too."""
    for field in msgspec.structs.fields(CampaignSpec):
        if field.name == "theory":
            continue
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            for inner in msgspec.structs.fields(field.type):
                yield f"{field.name}.{inner.name}", inner.type
        else:
            yield field.name, field.type
    for theory in THEORIES:
        for inner in msgspec.structs.fields(theory):
            yield f"{theory.table()}.{inner.name}", inner.type


def said_of_fields():
    """Return what is said of every field by its path, and of every table."""
    fields, tables = dict(NOTES), dict(TABLES)
    for theory in THEORIES:
        own = dict(theory.notes())
        tables[theory.table()] = own.pop("")[0]
        fields |= {f"{theory.table()}.{name}": note for name, note in own.items()}
    return fields, tables


@pytest.mark.parametrize("name", presets())
def test_a_preset_reads_back_as_itself(name, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(spec_text(preset(name)))
    assert load_spec(path) == preset(name)
    assert load_spec(path).sha256 == preset(name).sha256


def test_a_theory_that_comes_later_replaces_no_preset(tmp_path, monkeypatch):
    (tmp_path / "presets.toml").write_text(
        '[tiny]\nabout = "another"\nspec = {}\n[own]\nabout = "its own"\nspec = {}\n'
    )
    known, folder = presets(), specs.plugin_folder
    monkeypatch.setattr(specs, "theory_names", lambda: (*theory_names(), "later"))
    monkeypatch.setattr(
        specs, "plugin_folder", lambda group, name: tmp_path if name == "later" else folder(group, name)
    )
    assert presets() == known | {"own": "its own"}


def test_unusual_values_read_back(tmp_path):
    spec = CampaignSpec(
        name='a "quoted" \\ <name>, # not a comment',
        seed=2**32 - 1,
        theory=Lattice(volumes=((8, 8, 8, 4), (6, 6, 6, 4)), beta_min=1e-05, beta_max=5.123456789012345),
        budget=Budget(trajectories=10**12, target_error=1e-300),
        running=Running(deterministic=True),
    )
    path = tmp_path / "spec.toml"
    path.write_text(spec_text(spec))
    assert load_spec(path) == spec


def test_every_field_is_explained_and_nothing_else_is():
    fields = dict(field_paths())
    notes, said = said_of_fields()
    assert set(notes) == set(fields)
    assert all(note[0] for note in notes.values())
    assert len(fields) > 35
    tables = {path.split(".")[0] for path in fields if "." in path}
    assert set(said) == tables
    assert all(said.values())


def test_every_number_has_a_unit():
    numbers = [path for path, kind in field_paths() if any(word in str(kind) for word in ("int", "float"))]
    assert "budget.seconds" in numbers
    assert "lattice.volumes" in numbers
    assert [path for path in numbers if len(said_of_fields()[0][path]) < 2] == []


def test_the_file_shows_every_field_with_default_and_choices():
    shown = [path for path, _ in field_paths() if not path.startswith("plasma.")]
    text = spec_text(PLAIN)
    values = tomllib.loads(text)
    assert values["budget"] == {"seconds": 150.0, "target_of": "first"}  # what is not set is there as a comment
    assert "# joules =" in text
    for path in shown:
        assert f"{path.split('.')[-1]} =" in text
    assert 'one of "heatbath", "hmc"' in " ".join(text.replace("\n#", " ").split())
    assert text.count("default:") == len(shown)
    assert max(map(len, text.splitlines())) <= 120


def test_defaults_in_the_comments_are_those_of_the_records():
    text = spec_text(PLAIN).replace("\n# ", " ")
    longest = next(line for line in text.splitlines() if "never exceeded" in line)
    default = next(f.default for f in msgspec.structs.fields(PLAIN.warmup) if f.name == "longest")
    assert f"default: {default})" in longest
