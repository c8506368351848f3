"""A journal as the page sees it: its fold so far, the records in which decisions stand, and what is wrong with it."""

import os
from pathlib import Path

from metalforge.campaign.state import CampaignState, Fold
from metalforge.campaign.store import JournalFollower
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.records import Assigned, Decided, Record, Rows
from metalforge.core.errors import MetalforgeError, SpecError


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
        self.decided: list[tuple[int, Assigned | Decided]] = []
        """Visits and other decisions, each with the number of records up to it."""
        self.problem = ""
        self._path = directory / JOURNAL
        self._follower: JournalFollower[Record] = JournalFollower(self._path, Record)
        self._fold = Fold()
        self._looked: tuple[int, int] | None = None

    def advance(self, until: int | None = None) -> None:
        """Take what was appended since the last look, and no more than the first `until` records of the journal."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            self.problem = f"no journal can be read in {self.directory}: {error.strerror}"
            return
        looked = found.st_size, found.st_mtime_ns
        if until is None and looked == self._looked:
            return  # damage is not read again and again
        self._looked = looked
        try:
            self._follower.poll(self._take, until)
            self.problem = "" if self.records else "no campaign is there yet: its journal is empty"
            if self.records:
                _ = self._fold.state  # says what is wrong with a record
        except MetalforgeError as error:
            self.problem = str(error)

    def _take(self, record: Record) -> None:
        self._fold(record)
        self.records += 1
        if isinstance(record, Rows):
            self.rows_at = self.records
        elif isinstance(record, Assigned) or (isinstance(record, Decided) and record.what != "head"):
            self.decided.append((self.records, record))

    @property
    def state(self) -> CampaignState:
        """The fold; raises where there is none."""
        if not self.records:
            raise SpecError(self.problem or "no campaign is there yet: its journal is empty")
        return self._fold.state
