"""Long chains on a grid of beta, made once: rows of the plaquette and the Polyakov loop from which blocks are drawn.

Made by ``python -m metalforge.experiments.tape --out FILE --workers N``, in minutes on many cores. Every chain is an
independent Markov chain at its own beta, warmed up and then measured after every update. Workers move all their
chains on in rounds and write what they have after each: a build that is interrupted, or runs out of ``--seconds``,
leaves a shorter tape with the same proportions, which ``--assemble`` (or the next build) puts together.

A file holds numbers only: a header with the spec and a SHA-256 of the rows, and for every chain an array (rows, 3) of
float32: plaquette, Re L, Im L. Single precision is 1e-3 of a unit of E, far below anything reweighting sees.
"""

import argparse
import hashlib
import os
import sys
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

# By full name: this file also runs as a script where the rest of the room, and what it needs, is not there.
from metalforge.core.errors import SpecError
from metalforge.core.files import replacing
from metalforge.lattice.chain import Chain, ChainSpec, HeatbathSpec
from metalforge.lattice.field import Precision
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp

__all__ = ["FULL", "Tape", "TapeSpec", "build_tape", "load_tape", "save_tape", "sweeping"]

Dims = tuple[int, int, int, int]
Rows = NDArray[np.float32]
ROUNDS = 20
"""Parts a build is written in: after a tenth of the time there are rows, at every beta."""
OBSERVED = ("plaquette", "polyakov_re", "polyakov_im")
SWEEPS = HeatbathSpec(heatbath=1, overrelax=4)


class TapeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of a tape: beta in ascending order and how many updates are measured at each."""

    dims: Dims
    betas: tuple[float, ...]
    updates: tuple[int, ...]
    warmup: int = 500
    seed: int = 2026
    sweeps: HeatbathSpec = SWEEPS

    def __post_init__(self) -> None:
        if not self.betas or len(self.betas) != len(self.updates) or list(self.betas) != sorted(set(self.betas)):
            raise SpecError("a tape needs ascending `betas` and one number of `updates` for each")
        if min(self.updates) < 1 or self.warmup < 0:
            raise SpecError("a tape needs at least one update at each beta, and no negative `warmup`")


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """The rows of every chain, (updates, 3) float32, in the order of the spec's beta."""

    spec: TapeSpec
    rows: tuple[Rows, ...]

    @property
    def total(self) -> int:
        """Measured updates of all chains."""
        return sum(len(rows) for rows in self.rows)


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    spec: TapeSpec
    sha256: str


def full_spec(updates: int = 2_200_000) -> TapeSpec:
    """Return the tape of the steering experiment: 8^3 x 4, dense at the transition, and down to 5.0 and up to 6.5.

    Shares of the updates: 3/7 at 5.66 .. 5.72 in steps of 0.005, 3/7 in the rest of 5.6 .. 5.8 in the same steps, 1/7
    outside in steps of 0.02 and 0.025.
    """
    inner = {round(5.66 + 0.005 * i, 4) for i in range(13)}
    dense = {round(5.60 + 0.005 * i, 4) for i in range(41)} - inner
    outer = {round(5.5 + 0.02 * i, 4) for i in range(5)} | {round(5.82 + 0.02 * i, 4) for i in range(5)}
    outer |= {round(5.0 + 0.025 * i, 4) for i in range(20)} | {round(5.925 + 0.025 * i, 4) for i in range(24)}
    share = {beta: part / (7 * len(group)) for group, part in ((inner, 3), (dense, 3), (outer, 1)) for beta in group}
    betas = tuple(sorted(share))
    return TapeSpec(dims=(8, 8, 8, 4), betas=betas, updates=tuple(max(1, round(updates * share[b])) for b in betas))


FULL = full_spec()


def build_tape(
    spec: TapeSpec, workers: int = 1, *, seconds: float | None = None, parts: Path | None = None, talk: bool = False
) -> Tape:
    """Return the tape, made by processes of one thread each; rows are kept in `parts` as they come, if given.

    Out of `seconds` it stops, with fewer rows and the same proportions. With `parts` the folder must be empty.
    """
    ends = None if seconds is None else time.monotonic() + seconds
    jobs = [(spec, share, ends, parts, talk) for share in _dealt(spec, workers)]
    if workers == 1:
        return _whole(spec, _run_share(*jobs[0]), "the build")
    # Spawned rather than forked: a fork of a process with threads may hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        made = pool.map(_run_share, *zip(*jobs, strict=True))
        return _whole(spec, {i: rows for some in made for i, rows in some.items()}, "the build")


def _whole(spec: TapeSpec, rows: dict[int, Rows], where: Path | str) -> Tape:
    """Return the tape of these rows, if every chain is there."""
    if sorted(rows) != list(range(len(spec.betas))):
        raise SpecError(
            f"{where} holds {len(rows)} of {len(spec.betas)} chains\nhint: build for longer, and assemble its parts"
        )
    return Tape(spec, tuple(rows[i] for i in range(len(spec.betas))))


def _dealt(spec: TapeSpec, workers: int) -> list[list[int]]:
    """Return the chains of each worker, longest first to whoever has least."""
    shares: list[list[int]] = [[] for _ in range(min(workers, len(spec.betas)))]
    load = [0] * len(shares)
    for chain in sorted(range(len(spec.betas)), key=lambda i: -spec.updates[i]):
        least = load.index(min(load))
        shares[least].append(chain)
        load[least] += spec.updates[chain] + spec.warmup
    return shares


def _run_share(
    spec: TapeSpec, share: Sequence[int], ends: float | None, parts: Path | None, talk: bool
) -> dict[int, Rows]:
    # Hot and cold starts in turn: a tape that remembered its starts would show it between neighbours.
    chains = {
        i: sweeping(
            spec.dims,
            spec.betas[i],
            seed=spec.seed,
            stream=i,
            start="hot" if i % 2 else "cold",
            warmup=spec.warmup,
            sweeps=spec.sweeps,
        )
        for i in share
    }
    rows: dict[int, list[Rows]] = {i: [] for i in share}
    for part in range(ROUNDS):
        began = time.monotonic()
        for i in share:
            wanted = spec.updates[i] * (part + 1) // ROUNDS - spec.updates[i] * part // ROUNDS
            rows[i].append(chains[i].measure(wanted).astype(np.float32))
        if parts is not None:
            _write(parts / f"part-{share[0]:04d}.npz", spec, {i: np.concatenate(rows[i]) for i in share})
        if talk:
            sys.stderr.write(f"chains {share[0]} ..: round {part + 1} of {ROUNDS}\n")
        # A round that cannot be finished is not begun; it takes no longer than the last one.
        now = time.monotonic()
        if ends is not None and now + (now - began) > ends:
            break
    return {i: np.concatenate(rows[i]) for i in share}


def sweeping(
    dims: Dims,
    beta: float,
    *,
    seed: int,
    stream: int,
    start: Literal["hot", "cold"] = "hot",
    warmup: int = 0,
    sweeps: HeatbathSpec = SWEEPS,
    precision: Precision = "f64",
) -> ChainRun:
    """Return a chain of sweeps on one core whose rows are those of a tape: plaquette, Re L, Im L."""
    spec = ChainSpec(dims=dims, beta=beta, seed=seed, stream=stream, start=start, precision=precision, heatbath=sweeps)
    return ChainRun(Chain(spec, threads=1), WarmUp(total=warmup), OBSERVED, measures=("measure",))


def save_tape(path: Path, tape: Tape) -> None:
    """Write the tape; a crash leaves the old file or the new one."""
    _write(path, tape.spec, dict(enumerate(tape.rows)))


def load_tape(path: Path) -> Tape:
    """Return the tape of a file, if its rows are those that were written."""
    return _whole(*_read(path), path)


def assemble(parts: Path) -> Tape:
    """Return the tape that the parts of a build make together; every chain must have begun."""
    found: dict[int, Rows] = {}
    spec: TapeSpec | None = None
    for path in sorted(parts.glob("part-*.npz")):
        its, rows = _read(path)
        if spec is not None and its != spec:
            raise SpecError(f"{path} is part of another tape\nhint: keep the parts of one build in one folder")
        spec, found = its, found | rows
    if spec is None:
        raise SpecError(f"{parts} holds no parts of a tape\nhint: build for longer")
    return _whole(spec, found, parts)


def _write(path: Path, spec: TapeSpec, rows: dict[int, Rows]) -> None:
    header = _Header(format="metalforge-tape-1", spec=spec, sha256=_digest(rows))
    arrays = {f"chain{i:04d}": rows[i] for i in sorted(rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as stream:
        text = np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)
        np.savez(stream, header=text, **arrays)  # type: ignore[arg-type]  # arrays by name


def _read(path: Path) -> tuple[TapeSpec, dict[int, Rows]]:
    try:
        # Opened here: a broken archive would leave the file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = msgspec.json.decode(stored["header"].tobytes(), type=_Header)
            rows = {int(name[5:]): stored[name] for name in stored.files if name.startswith("chain")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise SpecError(f"{path} is not a tape: {error}") from error
    if header.sha256 != _digest(rows):
        raise SpecError(f"{path} is damaged: its rows are not those that were written\nhint: build it again")
    return header.spec, rows


def _digest(rows: dict[int, Rows]) -> str:
    digest = hashlib.sha256()
    for i in sorted(rows):
        digest.update(f"{i} {rows[i].shape} {rows[i].dtype.str}".encode())
        digest.update(np.ascontiguousarray(rows[i]).tobytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the full tape, or put the parts of an interrupted build together."""
    parser = argparse.ArgumentParser(description="Build the tape of the steering experiment.")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of one thread each")
    parser.add_argument("--updates", type=int, default=sum(FULL.updates), help="measured updates of all chains")
    parser.add_argument("--warmup", type=int, default=FULL.warmup, help="updates before the first measurement")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long with what there is")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="another seed gives another, independent tape")
    parser.add_argument("--assemble", action="store_true", help="only put together the parts beside --out")
    given = parser.parse_args(arguments)
    parts = given.out.with_name(given.out.name + ".parts")
    if given.assemble:
        tape = assemble(parts)
    else:
        for old in parts.glob("part-*.npz"):
            old.unlink()
        spec = msgspec.structs.replace(full_spec(given.updates), seed=given.seed, warmup=given.warmup)
        tape = build_tape(spec, given.workers, seconds=given.seconds, parts=parts, talk=True)
    save_tape(given.out, tape)
    sys.stdout.write(f"{given.out}: {len(tape.rows)} beta, {tape.total} updates\n")


if __name__ == "__main__":
    main()
