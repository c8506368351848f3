"""Gauge kernels against other codes that are installed here: the same work, in turns, in the same minutes.

Nothing is built or downloaded. A file named by `METALFORGE_PEERS` says how each peer is called and what to read:

    [[peer]]
    name = "openQCD 1.6"
    work = "leapfrog step, 8x8x8x4"          # one of those printed when the name is unknown
    command = ["/opt/openqcd/time_leapfrog", "8", "4"]
    pattern = "([0-9.]+) ns"                 # the first group is nanoseconds a link, or microseconds an iteration of CG

Ours and theirs alternate three times, and the quickest of each counts, on one thread. Without the file rows stand
beside the machine's own multiply-add rate alone.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from metalforge.core import BenchRow, Measured, SpecError, best_of
from metalforge.lattice import GaugeField, scheme
from metalforge.lattice.field import Momenta
from metalforge.native import kernels

ROUNDS, STEPS = 3, 10
LATTICES = ((8, 8, 8, 4), (16, 16, 16, 16))
SITE_FLOPS = {"leapfrog step": 12.6e3, "1 heat bath + 4 overrelaxation": 60.5e3}
"""Counted in benchmarks/lattice/bench_gauge.py."""


class PeerProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of somebody else that prints how long it took."""

    name: str
    work: str
    command: tuple[str, ...]
    pattern: str

    def nanoseconds(self) -> float:
        """Run it once and return what it printed."""
        printed = subprocess.run(self.command, capture_output=True, text=True, check=True, timeout=600).stdout
        found = re.search(self.pattern, printed)
        if found is None:
            raise SpecError(f"{self.name} printed nothing like {self.pattern!r}. Got {printed[-200:]!r}")
        return float(found[1])


class Peers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of peers."""

    peer: tuple[PeerProgram, ...] = ()


def peers_here() -> tuple[PeerProgram, ...]:
    path = os.environ.get("METALFORGE_PEERS", "")
    return msgspec.toml.decode(Path(path).read_bytes(), type=Peers).peer if path else ()


def our_works() -> dict[str, tuple[object, float]]:
    """Every work by name: a function that does it once, and the nanoseconds of one link that a second of it is."""
    works = {}
    for dims in LATTICES:
        field = GaugeField.hot(dims, seed=1, threads=1)
        momenta = Momenta(field)
        momenta.refresh(seed=1, stream=0, step=1)
        step = iter(range(1, 1 << 30))
        leapfrog = partial(momenta.evolve, 5.7, scheme("leapfrog").stages(0.01, STEPS))
        size = "x".join(map(str, dims))
        works[f"leapfrog step, {size}"] = (leapfrog, 1e9 / STEPS / (4 * field.volume))

        def sweep(field=field, step=step):
            field.heatbath(5.7, seed=1, stream=0, step=next(step))
            for _ in range(4):
                field.overrelax()

        works[f"1 heat bath + 4 overrelaxation, {size}"] = (sweep, 1e9 / 5 / (4 * field.volume))
    return works


def rows() -> Iterator[BenchRow]:
    peers, works = peers_here(), our_works()
    if unknown := {peer.work for peer in peers} - set(works):
        raise SpecError(f"`work` of a peer must be of {', '.join(works)}. Got {', '.join(sorted(unknown))}")
    module = kernels()
    for name, (work, scale) in works.items():
        beside = [peer for peer in peers if peer.work == name]
        ours, theirs = float("inf"), dict.fromkeys(beside, float("inf"))
        for _ in range(ROUNDS):
            ours = min(ours, best_of(work, repeats=1, minimum_s=0.2) * scale)
            theirs = {peer: min(least, peer.nanoseconds()) for peer, least in theirs.items()}
        flops = module.fma_f64(1 << 15, 1) / best_of(lambda: module.fma_f64(1 << 15, 1))
        updates = 5 if "heat bath" in name else 1
        floor = SITE_FLOPS[name.split(",")[0]] / updates / 4 / flops * 1e9
        shown = {"ceiling_name": "FMA", "ceiling": rate(floor, "multiply-adds measured in the same minute")}
        value = rate(ours, f"best of {ROUNDS}, 1 thread")
        if not beside:
            yield BenchRow(name=f"{name}: {ours:.0f} ns/link", value=value, **shown)
        for peer, least in theirs.items():
            said = {"peer_name": peer.name, "peer": rate(least, f"its own clock, best of {ROUNDS}")}
            yield BenchRow(name=f"{name}: {ours:.0f} ns/link", value=value, **said, **shown)


def rate(nanoseconds: float, how: str) -> Measured:
    return Measured(value=1e3 / nanoseconds, unit="Mlink/s", how=how)
