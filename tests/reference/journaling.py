"""Small records for tests of a journal, and a process that appends them: ``python -m reference.journaling``."""

import resource
import sys

import msgspec

from metalforge.campaign.store import DirectoryLock, Journal, JournalError


class Measured(msgspec.Struct, tag="measured", frozen=True, kw_only=True, forbid_unknown_fields=True):
    chain: int
    value: float
    history: tuple[float, ...] = ()


class Noted(msgspec.Struct, tag="noted", frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    raw: msgspec.Raw = msgspec.Raw(b"null")


Record = Measured | Noted


def numbered(n):
    """The record that a test expects at place n."""
    return Measured(chain=n % 3, value=n / 7, history=(n / 3,)) if n % 4 else Noted(text=f"Gauß β {n}\n")


def put(path, data):
    """Make these the file's bytes without emptying it first, after which some file systems wait for the disk."""
    with open(path, "r+b") as stream:
        stream.write(data)
        stream.truncate(len(data))


def _append_for_ever(directory):
    """Take the lock, resume the journal, and print the number of each record once it is in the file."""
    with (
        DirectoryLock(directory),
        Journal.open(f"{directory}/journal.jsonl", Record, mode="resume") as journal,
    ):
        print("from", journal.count, flush=True)
        while True:
            print(journal.append(numbered(journal.count)), flush=True)


def _append_up_to_a_limit(directory):
    """Append until the system's file size limit refuses, then lift it and append one more."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal.open(f"{directory}/journal.jsonl", Record, mode="create") as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            while True:
                journal.append(numbered(journal.count))
        except JournalError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            refused = journal.count
            journal.append(numbered(refused))
            print(msgspec.json.encode([refused, str(error)]).decode())


if __name__ == "__main__":
    {"for-ever": _append_for_ever, "up-to-a-limit": _append_up_to_a_limit}[sys.argv[1]](sys.argv[2])
