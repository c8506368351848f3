"""Damaged files of a campaign: each is refused with an error that names it, or the campaign ends as it would have."""

import random
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import msgspec

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Steering, WarmUpPolicy, load_spec
from metalforge.core.errors import MetalforgeError
from reference.small_campaigns import PARTICLES, ROUNDS, run_until

SPEC = "spec.toml"
LITTLE = msgspec.structs.replace(
    ROUNDS,
    name="little",
    budget=Budget(trajectories=240),
    warmup=WarmUpPolicy(longest=20, shortest=10),
    steering=Steering(visit=40, initial=3),
    running=msgspec.structs.replace(ROUNDS.running, block=20, producers=1),
)
"""Four visits or so, a fifth of a second."""
PARTICLES_LITTLE = msgspec.structs.replace(
    PARTICLES,
    name="little",
    budget=Budget(trajectories=36),
    running=msgspec.structs.replace(PARTICLES.running, producers=1),
)
INTERRUPTED = 5 / 8
"""Part of its updates after which one copy of the campaign is interrupted: two chains have checkpoints then."""

Bytes = Callable[[bytes, random.Random], bytes]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _cut_tail(data: bytes, rng: random.Random) -> bytes:
    return data[: -rng.randint(1, min(200, len(data)))]


def _zeros(data: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice([1, 16, 512, 4096])
    return data[:at] + bytes(min(length, len(data) - at)) + data[at + length :]


def _zeros_after(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice([len(data), rng.randrange(len(data))])] + bytes(rng.choice([1, 512, 4096]))


def _noise(data: bytes, rng: random.Random) -> bytes:
    at, noise = rng.randint(0, len(data)), rng.randbytes(rng.choice([1, 20, 300]))
    return data[:at] + noise + data[at if rng.random() < 0.5 else at + len(noise) :]


def _all_noise(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([1, 100, len(data)]))


def _empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def _doubled(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _deleted(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def _swapped(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    i, j = rng.sample(range(len(lines)), 2)
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


def _whole_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: rng.randrange(1, len(lines))])


def _other_line_ends(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"]))


def _appended(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice([b"x", b"\n", b"{}\n", b"\xff\xfe", data[: len(data) // 2], data])


def _number(data: bytes, rng: random.Random) -> bytes:
    """Another value where a text has one: what a hand that slips writes."""
    places = list(re.finditer(rb"(?<=[ \[=])[-0-9.e]+|\"[^\"]*\"|true|false", data))
    at = rng.choice(places)
    values = [b"-1", b"0", b"nan", b"inf", b"1e400", b"9" * 30, b'""', b'"x"', b"[]", b"true", b"{}", b'"\\u0000"']
    return data[: at.start()] + rng.choice(values) + data[at.end() :]


BINARY: tuple[Bytes, ...] = (_flip, _flip, _cut, _cut_tail, _zeros, _zeros_after, _noise, _all_noise, _empty, _appended)
LINES: tuple[Bytes, ...] = (*BINARY, _doubled, _deleted, _swapped, _whole_lines, _other_line_ends)
TEXT: tuple[Bytes, ...] = (*LINES, _number, _number, _number)


class Damaged(msgspec.Struct, frozen=True, kw_only=True):
    """One damage: what was done to which file, how that ended, and what was wrong with that, if anything."""

    seed: int
    target: str
    damage: str
    ended: str
    fault: str = ""


class Targets:
    """Campaigns in a folder, whole and interrupted, whose files are damaged in copies."""

    def __init__(self, folder: Path, little: CampaignSpec = LITTLE) -> None:
        stranger = msgspec.structs.replace(little, name="stranger", seed=8)
        self._spec = little
        self.copy = folder / "copy"
        self.whole, self.part, self.stranger = folder / "whole", folder / "part", folder / "stranger"
        self.digests = {}
        for spec, directory in ((little, self.whole), (stranger, self.stranger)):
            with Campaign.open(spec, directory) as campaign:
                self.digests[spec.sha256] = campaign.run().digest()
        with Campaign.open(little, self.part) as campaign:
            assert run_until(campaign, round(INTERRUPTED * little.budget.trajectories)).finished is None
        self.chains = sorted(path.name for path in (self.part / "chains").iterdir())
        assert len(self.chains) > 1

    def attack(self, seed: int) -> Damaged:
        """Damage a file that the seed chooses, and see what the campaign makes of it."""
        rng = random.Random(seed)
        target = rng.choice(sorted(TARGETS))
        shutil.rmtree(self.copy, ignore_errors=True)
        return TARGETS[target](self, seed, rng)

    def _journal_of(self, origin: Path, target: str, seed: int, rng: random.Random) -> Damaged:
        shutil.copytree(origin, self.copy)
        damage = rng.choice(LINES)
        path = self.copy / JOURNAL
        path.write_bytes(damage(path.read_bytes(), rng))
        return self._judged(seed, target, damage.__name__, path)

    def journal(self, seed: int, rng: random.Random) -> Damaged:
        """The journal of a campaign that is finished."""
        return self._journal_of(self.whole, "journal", seed, rng)

    def journal_of_part(self, seed: int, rng: random.Random) -> Damaged:
        """The journal of one that was interrupted."""
        return self._journal_of(self.part, "journal of a part", seed, rng)

    def checkpoint(self, seed: int, rng: random.Random) -> Damaged:
        """Checkpoints of a campaign that was interrupted; all of them, since only those of open visits are read."""
        shutil.copytree(self.part, self.copy)
        damage = rng.choice(BINARY)
        for name in self.chains:
            path = self.copy / "chains" / name
            path.write_bytes(damage(path.read_bytes(), rng))
        return self._judged(seed, "checkpoint", damage.__name__, path.parent)

    def foreign_checkpoint(self, seed: int, rng: random.Random) -> Damaged:
        """Every checkpoint is that of another chain, of this campaign or of another; or is not there, or a folder."""
        shutil.copytree(self.part, self.copy)
        damage = rng.choice(["of the next chain", "of another campaign", "removed", "a folder", "the journal"])
        for name, following in zip(self.chains, [*self.chains[1:], self.chains[0]], strict=True):
            path = self.copy / "chains" / name
            path.unlink()
            match damage:
                case "of the next chain":
                    shutil.copy(self.part / "chains" / following, path)
                case "of another campaign":
                    shutil.copy(self.stranger / "chains" / name, path)
                case "a folder":
                    path.mkdir()
                case "the journal":
                    shutil.copy(self.part / JOURNAL, path)
        return self._judged(seed, "checkpoint", damage, path.parent)

    def small_file(self, seed: int, rng: random.Random) -> Damaged:
        """The spec beside the journal, or the lock: what they hold decides nothing, so no harm may come of it."""
        shutil.copytree(self.part, self.copy)
        name = rng.choice([SPEC, "lock"])
        path = self.copy / name
        damage = rng.choice(TEXT if name == SPEC else BINARY)
        path.write_bytes(damage(path.read_bytes(), rng))
        return self._judged(seed, name, damage.__name__, path)

    def spec_file(self, seed: int, rng: random.Random) -> Damaged:
        """A spec that somebody wrote: it has no checksum, so another whole spec is no fault; what is read is whole."""
        self.copy.mkdir()
        path, again = self.copy / SPEC, self.copy / "again.toml"
        damage = rng.choice(TEXT)
        path.write_bytes(damage(rng.choice([(self.whole / SPEC).read_bytes(), spec_text(self._spec).encode()]), rng))

        def look() -> str:
            found = load_spec(path)
            again.write_text(spec_text(found))
            return "same" if load_spec(again) == found else "differs: what it reads is not what it writes"

        return _outcome(seed, "spec file", damage.__name__, path, look)

    def _judged(self, seed: int, target: str, damage: str, path: Path) -> Damaged:
        """Resume the copy and run it to its end."""

        def look() -> str:
            with Campaign.resume(self.copy) as campaign:
                found = campaign.run().digest()
                wanted = self.digests[campaign.spec.sha256]
            return "same" if found == wanted else "differs: another digest"

        before = path.read_bytes() if path.is_file() else b""
        outcome = _outcome(seed, target, damage, path, look)
        if outcome.ended == "refused" and path.name == JOURNAL:
            # A first record that is torn is put aside, so that the directory can be used again.
            kept = [path.read_bytes(), *(torn.read_bytes() for torn in path.parent.glob("journal.torn-*"))]
            if before not in kept:
                return msgspec.structs.replace(outcome, fault="refused, and its bytes are gone")
        return outcome


TARGETS: dict[str, Callable[[Targets, int, random.Random], Damaged]] = {
    "checkpoint": Targets.checkpoint,
    "foreign checkpoint": Targets.foreign_checkpoint,
    "journal": Targets.journal,
    "journal of a part": Targets.journal_of_part,
    "small file": Targets.small_file,
    "spec file": Targets.spec_file,
}


def _outcome(seed: int, target: str, damage: str, path: Path, look: Callable[[], str]) -> Damaged:
    """Say how a look at a damaged file ended; anything but the same end or an error that names it is a fault."""
    fault = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ended, _, fault = look().partition(": ")
    except MetalforgeError as error:
        ended = "refused"
        if path.name not in str(error):
            fault = f"the error does not name {path.name}: {error}"
    except Exception as error:
        ended, fault = "raised", f"{type(error).__name__}: {error}"
    return Damaged(seed=seed, target=target, damage=damage.strip("_").replace("_", " "), ended=ended, fault=fault)
