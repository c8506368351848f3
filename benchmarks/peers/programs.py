"""Lattice codes of others that are called by the path of a program: what they are given, and what is read.

Nothing is built here. In a path {size} stands for the lattice, such as 8x8x8x4, for codes that have it compiled in.
Each gives the seconds of one unit of its work by its own clock:

- openQCD (`METALFORGE_OPENQCD`): its main program `ym1`, whose lattice is compiled in. One unit is a leapfrog step;
  trajectories of 100 steps, by its line "Time per trajectory".
- MILC (`METALFORGE_MILC`): `su3_ora` of its folder `pure_gauge`. One unit is 1 heat bath and 4 overrelaxation sweeps,
  by its line "Time".
- Grid (`METALFORGE_GRID`): a program that solves with `ConjugateGradient` for `NaiveStaggeredFermion` on one parity, as
  Grid's `tests/solver/Test_staggered_cg_prec.cc` does for the improved action. One unit is an iteration, by its lines
  "Converged on iteration" and "Elapsed".

Inputs and lines are those of openQCD 1.6's `main/README.ym1`, MILC's `pure_gauge/setup.c` and `control.c`, and Grid's
`ConjugateGradient.h`.
"""

import os
import re
import subprocess
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from benchmarks.rows import Turn
from metalforge.core import SpecError

Dims = tuple[int, int, int, int]
STEPS, TRAJECTORIES, SWEEPS = 100, 4, 50
YM1 = """[Run name]
name peer
[Directories]
log_dir {folder}
dat_dir {folder}
cnfg_dir {folder}
[Lattice parameters]
beta 5.7
c0 1.0
[Boundary conditions]
type 3
[Random number generator]
level 0
seed 1
[Trajectory length]
tau 1.0
[MD integrator]
integrator LPFR
nstep {steps}
[MD trajectories]
nth 0
ntr {trajectories}
dtr_log {trajectories}
dtr_cnfg {trajectories}
"""
SU3_ORA = """prompt 0
nx {0}
ny {1}
nz {2}
nt {3}
iseed 1

warms 0
trajecs {sweeps}
traj_between_meas {sweeps}
beta 5.7
steps_per_trajectory 4
qhb_steps 1
fresh
no_gauge_fix
forget
"""


def turn_of(code: str, dims: Dims) -> Turn | None:
    """A turn of a code for a lattice (x, y, z, t); None where there is no such program."""
    program = os.environ.get(f"METALFORGE_{code.upper()}", "").replace("{size}", size_of(dims))
    return (lambda: TURNS[code](program, dims)) if program and which(program) else None


def size_of(dims: Dims) -> str:
    return "x".join(map(str, dims))


def openqcd(program: str, dims: Dims) -> float:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "ym1.in").write_text(YM1.format(folder=folder, steps=STEPS, trajectories=TRAJECTORIES))
        _printed([program, "-i", "ym1.in", "-noloc", "-noms", "-rmold"], cwd=place)
        log = (place / "peer.log").read_text()
    t, x, y, z = (int(n) for n in _found(r"(\d+)x(\d+)x(\d+)x(\d+) lattice", log, program))
    if (*sorted((x, y, z)), t) != (*sorted(dims[:3]), dims[3]):
        raise SpecError(f"{program} was compiled for {x}x{y}x{z}x{t} and cannot do {size_of(dims)}")
    return float(_found(r"average = ([\d.e+-]+) sec", log, program)[0]) / STEPS


def milc(program: str, dims: Dims) -> float:
    printed = _printed([program], text=SU3_ORA.format(*dims, sweeps=SWEEPS))
    return float(_found(r"Time = ([\d.e+-]+) seconds", printed, program)[0]) / SWEEPS


def grid(program: str, dims: Dims) -> float:
    printed = _printed([program, "--grid", ".".join(map(str, dims)), "--threads", "1"])
    iterations = int(_found(r"Converged on iteration (\d+)", printed, program)[0])
    return float(_found(r"Elapsed\s+([\d.e+-]+) s", printed, program)[0]) / iterations


TURNS = {"openqcd": openqcd, "milc": milc, "grid": grid}


def _printed(command: list[str], text: str = "", cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=600, cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SpecError(f"{command[0]} ended with {done.returncode}. It said {(done.stderr or done.stdout)[-300:]!r}")
    return done.stdout


def _found(pattern: str, text: str, program: str) -> tuple[str, ...]:
    found = re.findall(pattern, text)
    if not found:
        raise SpecError(f"{program} printed nothing like {pattern!r}. Got {text[-200:]!r}")
    last = found[-1]
    return last if isinstance(last, tuple) else (last,)
