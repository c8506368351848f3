"""The page beside peers: what is read from programs of others, and what stands where a peer is not installed.

The codes themselves are not here; small programs print their lines in the form that their sources have.
"""

import sys
from pathlib import Path

import pytest

from benchmarks.rows import BenchRow, load_benchmark
from metalforge.core import Measured, SpecError

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
DIMS = (8, 8, 8, 4)
RATE = Measured(value=1234.0, unit="1/s", how="test")
SAYS = {
    "openqcd": "open('peer.log', 'w').write('4x8x8x8 lattice, 4x8x8x8 local lattice\\n"
    "Time per trajectory = 2.00e-01 sec (average = 1.00e-01 sec)\\n')",
    "milc": "assert 'qhb_steps 1' in sys.stdin.read(); print('Time = 2.500000e-01 seconds')",
    "grid": "assert sys.argv[2] == '8.8.8.4'; print('Grid : Message : ConjugateGradient Converged on iteration 50\\t'"
    "'Computed residual 1e-9'); print('Grid : Message : \\tElapsed    0.025 s')",
}


@pytest.fixture
def programs():
    return load_benchmark(PEERS / "programs.py")


def place(code, folder, monkeypatch):
    program = folder / "8x8x8x4" / code
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\n{SAYS[code]}\n")
    program.chmod(0o755)
    monkeypatch.setenv(f"METALFORGE_{code.upper()}", str(folder / "{size}" / code))


@pytest.mark.parametrize(("code", "seconds"), [("openqcd", 1e-3), ("milc", 5e-3), ("grid", 5e-4)])
def test_seconds_of_a_unit_are_read_from_what_a_code_says(code, seconds, programs, tmp_path, monkeypatch):
    place(code, tmp_path, monkeypatch)
    assert programs.turn_of(code, DIMS)() == pytest.approx(seconds)
    assert programs.turn_of(code, (16, 16, 16, 16)) is None


def test_a_program_for_another_lattice_is_refused(programs, tmp_path, monkeypatch):
    place("openqcd", tmp_path, monkeypatch)
    with pytest.raises(SpecError, match="compiled for 8x8x8x4"):
        programs.openqcd(str(tmp_path / "8x8x8x4" / "openqcd"), (16, 16, 16, 16))


def test_a_row_says_its_ratio_or_how_the_peer_would_be_found():
    page = load_benchmark(PEERS / "page.py")
    row = BenchRow(name="w", value=2 * RATE, peer_name="MILC", peer=RATE, ceiling_name="c", ceiling=4 * RATE,
                   turns=(2.0, 2.0, 2.0))  # fmt: skip
    assert page.line(row) == "| w | 1/s | 2,468 | MILC | 1,234 | 2 (2 to 2) | 50 % of c |"
    absent = BenchRow(name="w", value=RATE, peer_name="MILC", ceiling_name="c", ceiling=4 * RATE)
    assert page.line(absent) == "| w | 1/s | 1,234 | MILC | not installed here: `--milc PATH` |  | 25 % of c |"
