"""The first visits of presets have the rows that they had before theories were plug-ins, bit for bit."""

import hashlib
import os
import platform
import subprocess
import sys

import pytest

from metalforge.campaign.results import load

ROWS = {
    "tiny": "52bb5caad78b15eae760aa2a7983b74e1959ab33b7af0353d59cc0693b1f596b",
    "plasma-tiny": "f8ebfc5cdb6b309850da911877d4f448afe482eb1a68a2bbd70aeb245eb1e9d9",
}
"""SHA-256 of the columns of the first two visits by kernels of level v2, where steering has no say yet."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the level v2 of the kernels is one of x86-64")
@pytest.mark.parametrize("preset", ROWS)
def test_the_rows_of_a_preset_are_as_they_were(tmp_path, preset):
    command = [sys.executable, "-m", "metalforge", "scan", "--preset", preset, "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        command, env=os.environ | {"METALFORGE_ISA": "v2"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    state = load(tmp_path / "run").state
    seen = hashlib.sha256()
    for visit in state.visits[:2]:
        chain = state.chains[visit.chain]
        assert chain.measured >= visit.updates > 0
        for name in sorted(chain.columns):
            rows = chain.columns[name].array()[: visit.updates]
            seen.update(name.encode() + rows.astype("<f8").tobytes())
    assert seen.hexdigest() == ROWS[preset]
