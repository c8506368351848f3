"""The summary of a file of long attacks: ``python -m chaos.table FILE > docs/tables/chaos.md``, run in tests/."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .ledger import Batch, read, written

PLAN = {
    "kills": ("1,000 kills", "campaigns killed and resumed to their end, each compared bit for bit"),
    "damages": ("10,000 damages", "damaged journals, checkpoints, locks and specs: refused by name, or the same end"),
    "schedules": ("100,000 schedules", "random graphs under seeded schedules: every item accounted for"),
    "soak": ("60 minutes", "a rewiring a second, a kill every ten: no item lost or doubled, memory flat"),
    "files": (
        "100,000 files",
        "changed .onnx, .npy, .npz, .mfp, .mfd, .safetensors, .json: no traceback, 512 MB, 5 s each",
    ),
    "cluster-kills": (
        "200 kills",
        "workers, nodes, supervisors, terminals and heads of clusters killed: the rows of one machine, bit for bit",
    ),
}
"""Attacks, what is planned of each, and what each is."""
UNITS = {"soak": "minutes", "schedules": "ran"}
"""What of an attack's counts says how much there was; of others all that are neither signals nor largest figures."""


def amount(attack: str, done: Counter[str]) -> float:
    """Return how much of an attack there was, in the unit of its plan."""
    if attack in UNITS:
        return done[UNITS[attack]]
    return sum(count for name, count in done.items() if not name.startswith(("SIG", "largest")))


def lines(batches: Sequence[Batch], earlier: Sequence[Batch] = ()) -> Iterator[str]:
    """Give the page, line by line; `earlier` batches are those whose seeds were run again, after a fault was mended."""
    yield "# Attacks on campaigns, pipelines and files"
    yield ""
    yield "What was done to them in long runs, from seeds, and what was wrong afterwards."
    yield ""
    yield "Made by `PYTHONPATH=tests python -m chaos.table docs/tables/chaos.jsonl`."
    yield "`METALFORGE_CHAOS_FILE=docs/tables/chaos.jsonl make test-long PART=chaos-kills` (and"
    yield "chaos-damages, chaos-schedules, chaos-soak, chaos-files, cluster-kills) goes on where"
    yield "[chaos.jsonl](chaos.jsonl) ends."
    yield ""
    yield "| attack | planned | done | faults | hours | what it is |"
    yield "| --- | --- | --- | --- | --- | --- |"
    of = {attack: [batch for batch in batches if batch.attack == attack] for attack in PLAN}
    done = {attack: _summed(found) for attack, found in of.items()}
    for attack, (planned, about) in PLAN.items():
        faults = sum(len(batch.faults) for batch in of[attack])
        hours = sum(batch.seconds for batch in of[attack]) / 3600
        yield f"| {attack} | {planned} | {amount(attack, done[attack]):,.0f} | {faults} | {hours:.2f} | {about} |"
    for attack, counts in done.items():
        if counts:
            yield ""
            yield f"## {attack.capitalize()}"
            yield ""
            yield "| what | count |"
            yield "| --- | --- |"
            yield from (f"| {name} | {count:,.10g} |" for name, count in sorted(counts.items()))
    faults = [(batch, fault) for found in of.values() for batch in found for fault in batch.faults]
    yield ""
    yield "## Faults"
    yield ""
    yield from (f"- {b.attack}, seed {b.seed}: {fault.splitlines()[0]}" for b, fault in faults)
    mended = [(batch, fault) for batch in earlier for fault in batch.faults]
    yield from (f"- {b.attack}, seed {b.seed}: {f.splitlines()[0]}; mended, and run again without" for b, f in mended)
    if not faults:
        yield "\nNone is left." if mended else "None was found."
    yield ""
    commits = sorted({batch.commit[:12] for batch in batches if batch.commit})
    yield f"Code of {', '.join(commits)}." if commits else "The code's commit was not known."


def _summed(batches: Sequence[Batch]) -> Counter[str]:
    total: Counter[str] = Counter()
    for batch in batches:
        for name, count in batch.done.items():
            total[name] = max(total[name], count) if name.startswith("largest") else total[name] + count
    return total


if __name__ == "__main__":
    standing = read(Path(sys.argv[1]))
    earlier = [batch for batch in written(Path(sys.argv[1])) if batch not in standing]
    sys.stdout.write("\n".join(lines(standing, earlier)) + "\n")
