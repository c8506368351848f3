"""A sqlite table over a journal: which records are of which kind, chain, beta and time, and where each line begins.

The journal alone is the truth. An index that is missing, damaged, of another journal or behind it is made again; where
it cannot be written, it is made in memory. So a campaign never depends on one, and deleting it costs a second.
"""

import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from metalforge.core.closing import Closing
from metalforge.core.files import PathLike, opened

from .failures import JournalError
from .lines import BrokenLine, LineFormat
from .reading import JournalContents, read_journal

__all__ = ["Index", "IndexRow", "Indexed", "open_index", "rebuild"]

Record = TypeVar("Record")

_CHUNK_BYTES = 1 << 20
_SCHEMA = """
CREATE TABLE records (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, chain, beta REAL, at REAL, offset INTEGER NOT NULL);
CREATE INDEX by_kind ON records (kind, at);
CREATE INDEX by_chain ON records (chain, n);
CREATE INDEX by_beta ON records (beta, n);
CREATE TABLE journal (bytes INTEGER NOT NULL, crc INTEGER NOT NULL);
"""


class IndexRow(NamedTuple):
    """What a record is found by; `at` is seconds since the epoch."""

    kind: str
    chain: int | str | None = None
    beta: float | None = None
    at: float | None = None


class Indexed(NamedTuple):
    """A row of the index: the record's number, what it is found by, and the byte at which its line begins."""

    n: int
    kind: str
    chain: int | str | None
    beta: float | None
    at: float | None
    offset: int


class Index(Closing, Generic[Record]):
    """Answers questions about a journal as it was when the index was opened."""

    def __init__(self, journal: PathLike, database: sqlite3.Connection, format_: LineFormat[Record]) -> None:
        self.journal = journal
        self._database, self._format = database, format_

    def counts(self) -> dict[str, int]:
        """Give how many records there are of each kind."""
        return dict(self._database.execute("SELECT kind, count(*) FROM records GROUP BY kind ORDER BY kind"))

    def betas(self, kind: str) -> dict[float, int]:
        """Give how many records of a kind there are at each beta, lowest first."""
        query = "SELECT beta, count(*) FROM records WHERE kind = ? AND beta IS NOT NULL GROUP BY beta ORDER BY beta"
        return dict(self._database.execute(query, (kind,)))

    def rows(
        self,
        *,
        kind: str | None = None,
        chain: int | str | None = None,
        beta: float | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[Indexed]:
        """Give the rows that agree with everything asked, in journal order; `since <= at < until`."""
        asked = {"kind = ?": kind, "chain = ?": chain, "beta = ?": beta, "at >= ?": since, "at < ?": until}
        given = {condition: value for condition, value in asked.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        query = f"SELECT n, kind, chain, beta, at, offset FROM records {where} ORDER BY n"
        return [Indexed(*row) for row in self._database.execute(query, tuple(given.values()))]

    def record(self, row: Indexed) -> Record:
        """Read one record from the journal, verified again."""
        with opened(self.journal, JournalError) as (stream, _):
            stream.seek(row.offset)
            try:
                return self._format.record(stream.readline(), row.n)
            except BrokenLine as broken:
                raise JournalError(f"line {row.n + 1} (byte {row.offset}) has changed: {broken}") from broken

    def close(self) -> None:
        """Close the database; again is nothing."""
        self._database.close()


def open_index(
    journal: PathLike, index: PathLike, record_type: Any, describe: Callable[[Record], IndexRow]
) -> Index[Record]:
    """Give an index that agrees with the journal as it is now: the one on disk, or a new one.

    Raises `JournalError` only, where the journal itself cannot be read.
    """
    database = _agreeing(Path(index), _fingerprint(journal))
    if database is None:
        return rebuild(journal, index, record_type, describe)
    return Index(journal, database, LineFormat(record_type))


def rebuild(
    journal: PathLike, index: PathLike, record_type: Any, describe: Callable[[Record], IndexRow]
) -> Index[Record]:
    """Give a new index of every whole record; it takes the old one's place on disk, unless that cannot be written."""
    fingerprint = _fingerprint(journal)
    # Read after the fingerprint: records appended between the two make the index look old, never wrong.
    contents: JournalContents[Record] = read_journal(journal, record_type)
    found = [
        (n, *describe(record), offset)
        for n, (record, offset) in enumerate(zip(contents.records, contents.offsets, strict=True))
    ]
    database = sqlite3.connect(":memory:")
    database.executescript(_SCHEMA)
    with database:
        database.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", found)
        database.execute("INSERT INTO journal VALUES (?, ?)", fingerprint)
    with suppress(sqlite3.Error, OSError):  # a convenience: on a full or read-only disk there is none
        _save(database, Path(index))
    return Index(journal, database, LineFormat(record_type))


def _fingerprint(journal: PathLike) -> tuple[int, int]:
    """Give the journal's size and the CRC-32 of all its bytes."""
    size = crc = 0
    with opened(journal, JournalError) as (stream, _):
        while chunk := stream.read(_CHUNK_BYTES):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return size, crc


def _agreeing(index: Path, fingerprint: tuple[int, int]) -> sqlite3.Connection | None:
    """Give the index on disk if it is whole and of this journal; otherwise nothing."""
    if not index.is_file():
        return None
    database = sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)
    try:
        whole = database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        schema = database.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall()
        if whole and schema == _schema() and database.execute("SELECT * FROM journal").fetchall() == [fingerprint]:
            return database
    except sqlite3.Error:
        pass  # not a database, or a damaged one
    database.close()
    return None


def _schema() -> list[tuple[str]]:
    """Give the tables of an index as sqlite tells them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_SCHEMA)
        return database.execute("SELECT sql FROM sqlite_schema ORDER BY rowid").fetchall()


def _save(database: sqlite3.Connection, index: Path) -> None:
    """Write the database to a new file, then put it in the index's place."""
    scratch = index.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with closing(sqlite3.connect(scratch)) as copy:
            database.backup(copy)
        os.replace(scratch, index)
    finally:
        scratch.unlink(missing_ok=True)
