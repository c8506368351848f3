"""A journal as the page sees it: its fold so far, the records in which decisions stand, and what is wrong with it."""

import os
from copy import copy
from pathlib import Path

from metalforge.campaign import (
    JOURNAL,
    Assigned,
    CampaignState,
    Commanded,
    Decided,
    Fold,
    JournalFollower,
    Record,
    Rows,
)
from metalforge.core import MetalforgeError, SpecError

SLICE = 8 << 20
"""Bytes of a journal that are read before somebody else may ask: about 0.1 s."""
SPACING, MOST_KEPT = 1 << 20, 32
"""Bytes between two states of the past that are kept, and how many are: twice the bytes where there would be more."""
_ALL = 1 << 62


class Followed:
    """Follows one campaign, from another process or machine, and never writes in its directory.

    A journal that is damaged, cut or not there is no error of the page: `problem` says what is wrong, and what stands
    before the damage can be looked at.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records = 0
        """Records that were folded."""
        self.rows_at = 0
        """Records up to the last one with rows: figures change with those."""
        self.decided: list[tuple[int, Assigned | Commanded | Decided]] = []
        """Visits, commands and other decisions, each with the number of records up to it."""
        self.problem = ""
        self.behind = False
        """Whether there is more in the journal than was read yet: a long one is read in slices."""
        self._path = directory / JOURNAL
        self._follower = JournalFollower(self._path)
        self._fold = Fold()
        self._looked: tuple[int, int] | None = None

    def advance(self, until: int | None = None, most: int = SLICE) -> None:
        """Take what was appended since the last look: until the journal's record `until`, and about `most` bytes."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            self.problem = f"no journal can be read in {self.directory}: {error.strerror}"
            return
        looked = found.st_size, found.st_mtime_ns
        if until is None and looked == self._looked and not self.behind:
            return  # damage is not read again and again
        self._looked, self.behind = looked, False
        try:
            before = self.place
            self._follower.poll(self._take, until, most)
            self.behind = until is None and self.place - before >= most
            self.problem = "" if self.records else "no campaign is there yet: its journal is empty"
            if self.records:
                _ = self._fold.state  # says what is wrong with a record
            if self.behind:
                self.problem = f"the journal is being read: {100 * self.place // found.st_size} % so far"
        except MetalforgeError as error:
            self.problem = str(error)

    def fork(self) -> "Followed":
        """Return one that goes on by itself from here."""
        other = copy(self)
        other.decided, other._follower, other._fold = self.decided.copy(), copy(self._follower), self._fold.fork()
        return other

    def _take(self, record: Record) -> None:
        self._fold(record)
        self.records += 1
        if isinstance(record, Rows):
            self.rows_at = self.records
        elif isinstance(record, Assigned | Commanded) or (isinstance(record, Decided) and record.what != "head"):
            self.decided.append((self.records, record))

    @property
    def place(self) -> int:
        """Bytes of the journal that were folded."""
        return self._follower.end.offset

    @property
    def state(self) -> CampaignState:
        """The fold; raises where there is none."""
        if not self.records:
            raise SpecError(self.problem or "no campaign is there yet: its journal is empty")
        return self._fold.state


class Past:
    """States of a campaign after any number of records: from the nearest one before it that is kept."""

    def __init__(self, directory: Path) -> None:
        self._spacing = SPACING
        self._front = Followed(directory)
        self._kept: list[Followed] = []
        self._last = self._front

    def at(self, records: int) -> Followed:
        """Return the state after so many records; the next call may change it."""
        if records >= self._front.records:
            self._reach(records)
            return self._front
        before = [one for one in (*self._kept, self._last) if one.records <= records]
        nearest = max(before, key=lambda one: one.records, default=None)
        if nearest is None:
            self._last = Followed(self._front.directory)
        elif nearest is not self._last:  # which goes on by itself; those that are kept stay as they are
            self._last = nearest.fork()
        self._last.advance(records, most=_ALL)
        return self._last

    def _reach(self, records: int) -> None:
        """Go on at the front, and keep states on the way."""
        while self._front.records < records:
            before = self._front.place
            self._front.advance(records, most=self._spacing)
            if self._front.place == before:
                return  # no more is there
            if self._front.place >= (self._kept[-1].place if self._kept else 0) + self._spacing:
                self._kept.append(self._front.fork())
                if len(self._kept) > MOST_KEPT:
                    self._spacing *= 2
                    self._kept = self._kept[1::2]
