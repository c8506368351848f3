"""Small records for tests of a journal, and a process that appends them: ``python -m reference.journaling``."""

import resource
import sys
from typing import NamedTuple

import msgspec

from metalforge.campaign.store.directory import DirectoryLock
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import JournalError, JournalFollower
from metalforge.campaign.store.records import Decided, Rows


class Contents(NamedTuple):
    """The whole records of a journal, where the line of each begins, where all end, and the torn tail."""

    records: list
    offsets: list
    torn: object
    end: object


def contents_of(path):
    follower = JournalFollower(path)
    records, offsets, at = follower.read(), [], 0
    with open(path, "rb") as stream:
        while at < follower.end.offset:
            line = stream.readline()
            offsets += [at] * len(msgspec.json.decode(line)["records"])
            at += len(line)
    return Contents(records, offsets, follower.torn, follower.end)


def measured(chain, value, history=()):
    return Rows(chain=f"c{chain}", phase="measure", first=0, columns={"value": history}, seconds=value)


def noted(text):
    return Decided(what="noted", by="test", reason=text)


def numbered(n):
    """The record that a test expects at place n."""
    return measured(n % 3, n / 7, (n / 3,)) if n % 4 else noted(f"Gauß β {n}\n")


def put(path, data):
    """Make these the file's bytes without emptying it first, after which some file systems wait for the disk."""
    with open(path, "r+b") as stream:
        stream.write(data)
        stream.truncate(len(data))


def _append_for_ever(directory):
    """Take the lock, resume the journal, and print the number of each record once it is in the file."""
    with (
        DirectoryLock(directory),
        Journal.open(f"{directory}/journal.jsonl", mode="resume") as journal,
    ):
        print("from", journal.count, flush=True)
        while True:
            print(journal.append(numbered(journal.count)), flush=True)


def _append_up_to_a_limit(directory):
    """Append until the system's file size limit refuses, then lift it and append one more."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal.open(f"{directory}/journal.jsonl", mode="create") as journal:
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
