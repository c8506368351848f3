"""What this machine cannot run is refused before a directory is made, with what it would take."""

import msgspec
import pytest

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import Campaign
from metalforge.core.errors import MetalforgeError, SpecError
from metalforge.lattice.campaign import Lattice
from reference.command_line import call
from reference.small_campaigns import ROUNDS

WIDE = {"volumes": ((512, 512, 512, 512),), "beta_min": 5.0, "beta_max": 6.0}
TOO_LARGE = [
    ("theory", WIDE, "GiB", 3),
    ("running", {"producers": 100_000}, "GiB", 3),
    ("running", {"threads": 100_000}, "1024", 2),
]


@pytest.mark.parametrize(("table", "changes", "word", "code"), TOO_LARGE, ids=["512^4", "producers", "threads"])
def test_a_spec_that_cannot_run_here_leaves_no_directory(table, changes, word, code, tmp_path):
    part = msgspec.structs.replace(getattr(ROUNDS, table), **changes)
    spec = msgspec.structs.replace(ROUNDS, **{table: part})
    with pytest.raises(MetalforgeError, match=word):
        Campaign.open(spec, tmp_path / "run")
    (tmp_path / "spec.toml").write_text(spec_text(spec))
    ended = call("scan", "spec.toml", "--out", "run", cwd=tmp_path, code=code)
    assert word in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]


@pytest.mark.parametrize("field", ["tolerance", "force_tolerance", "mass", "tau"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_of_a_lattice_are_finite(field, value):
    with pytest.raises(SpecError, match=field):
        Lattice(volumes=((4, 4, 4, 2),), **{field: value})
