"""Run campaigns on a GPU as users do: scans alone and ten at a time, kill -9 and resume.

Every scan must exit with 0 and without a fault in its journal. Every row that a campaign recorded, before and after a
kill, is compared bit for bit with that of a chain that was never interrupted.

    python benchmarks/gpu/campaigns.py --scans 60 --kills 20 --json campaigns.json

One scan in ten runs alone, the others ten at a time. Needs a GPU and takes about ten minutes on an H200.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metalforge import campaign
from metalforge.lattice import Chain
from metalforge.lattice.batch import ChainBatch
from metalforge.native.cuda.engine import cuda_engine

LATTICES = (("8,8,8,2", 5.0, 5.2, 0.003), ("8,8,8,4", 5.6, 5.8, 0.003), ("12,12,12,4", 5.6, 5.8, 0.003))
"""Volume, range of beta and target error."""
SIDE_BY_SIDE = 10
KILLED_AFTER_S = (6.0, 14.0)
STRETCH = 64
"""Updates between two transfers of rows; the ring of a batch has room for 256."""
SPEC = """
[lattice]
volumes = [[{volume}]]
beta_min = {low}
beta_max = {high}

[budget]
seconds = {seconds}
target_error = {target}

[running]
substrate = "cuda:0"
"""


def scan(number: int, folder: Path, seconds: float) -> tuple[Path, "subprocess.Popen[str]"]:
    """Start a scan of one of the lattices in turn, with a seed of its own."""
    volume, low, high, target = LATTICES[number % len(LATTICES)]
    spec, out = folder / f"{number}.toml", folder / f"run{number}"
    spec.write_text(SPEC.format(volume=volume, low=low, high=high, target=target, seconds=seconds))
    return out, started("scan", str(spec), "--seed", str(1000 + number), "--out", str(out), "--json")


def started(*words: str) -> "subprocess.Popen[str]":
    """Start a command of metalforge."""
    command = [sys.executable, "-m", "metalforge", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(out: Path, process: "subprocess.Popen[str]", kind: str) -> dict[str, Any]:
    """Wait for a campaign; return its exit code, its faults and its result."""
    text, said = process.communicate()
    row: dict[str, Any] = {"kind": kind, "run": out.name, "rc": process.returncode}
    if process.returncode:
        return row | {"said": said[-600:]}
    decisions = [d for d in campaign.load(out).state.decisions if d.what in ("fault", "abandoned")]
    summary = json.loads(text)
    row |= {key: summary[key] for key in ("stopped_by", "trajectories", "seconds")}
    row |= {key: summary["result"][key] for key in ("value", "error", "established")}
    return row | {"faults": [f"{d.chain} {d.what} {d.by}: {d.reason[:160]}" for d in decisions]}


def differing(out: Path) -> tuple[int, int]:
    """Return the rows of a campaign, and those that differ from the rows of undisturbed chains."""
    state = campaign.load(out).state
    logs = [log for log in state.chains.values() if log.rows]
    lattice = state.spec.theory
    engine = cuda_engine(0)
    chains = [
        Chain(
            lattice.chain(log.system, log.coordinate, seed=state.spec.seed, stream=log.stream, start=log.start),
            engine=engine,
        )
        for log in logs
    ]
    batch, columns = ChainBatch(chains), [dict[str, list[float]]() for _ in logs]
    made, longest = 0, max(log.rows for log in logs)
    while made < longest:
        batch.start(min(STRETCH, longest - made))
        for found, kept in zip(batch.collect(), columns, strict=True):
            for name, values in found.items():
                kept.setdefault(name, []).extend(values)
        made = min(made + STRETCH, longest)
    wrong = 0
    for log, again in zip(logs, columns, strict=True):
        names = [name for name in log.columns if name in again]
        wrong += int(sum(np.array(log.columns[n][:]) != again[n][: log.rows] for n in names).astype(bool).sum())
    return sum(log.rows for log in logs), wrong


def in_groups(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Cut numbers into groups."""
    return [numbers[i : i + size] for i in range(0, len(numbers), size)]


def killed_and_resumed(
    numbers: Sequence[int], folder: Path, seconds: float, rng: random.Random
) -> list[dict[str, Any]]:
    """Begin scans side by side, kill each at a random moment, and resume those that had begun."""
    running = [scan(n, folder, seconds) for n in numbers]
    began = time.monotonic()
    for at, n in sorted((rng.uniform(*KILLED_AFTER_S), n) for n in range(len(running))):
        time.sleep(max(0.0, at - (time.monotonic() - began)))
        os.kill(running[n][1].pid, signal.SIGKILL)
    begun = [out for out, process in running if process.wait() and (out / "journal.jsonl").exists()]
    return [
        ended(out, process, "killed and resumed")
        for out, process in [(o, started("resume", str(o), "--json")) for o in begun]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scans", type=int, default=60)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0, help="budget of each scan")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    rng, rows = random.Random(35), list[dict[str, Any]]()
    alone = options.scans // 10
    together = in_groups(range(alone, options.scans), SIDE_BY_SIDE)
    killed = in_groups(range(options.scans, options.scans + options.kills), SIDE_BY_SIDE)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for group in [*killed, *([n] for n in range(alone)), *together]:
            if group in killed:
                found = killed_and_resumed(group, folder, options.seconds, rng)
            else:
                kind = "alone" if len(group) == 1 else f"{len(group)} at a time"
                begun = [scan(n, folder, options.seconds) for n in group]
                found = [ended(out, process, kind) for out, process in begun]
            for row in found:
                if not row["rc"]:
                    row["rows"], row["differ"] = differing(folder / row["run"])
            rows += found
            print(*map(json.dumps, found), sep="\n", flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(rows, indent=1))
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = [row for row in rows if row["kind"] == kind]
        codes = Counter(row["rc"] for row in some)
        faults, recorded, wrong = (
            sum(len(row.get("faults", ())) for row in some),
            sum(row.get("rows", 0) for row in some),
            sum(row.get("differ", 0) for row in some),
        )
        counts = f"exit codes {dict(codes)}, {faults} faults, {wrong} of {recorded} rows differ"
        print(f"{kind}: {len(some)} campaigns, {counts}")
    return int(any(row["rc"] or row["faults"] or row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
