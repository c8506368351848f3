"""What a campaign keeps on disk: records go in, one checked line each, and come back after any crash."""

from .directory import writable_directory
from .failures import DirectoryError, DirectoryLockedError, JournalError
from .index import Index, Indexed, IndexRow, open_index, rebuild
from .journal import Journal
from .lock import DirectoryLock, LockHolder, read_holder
from .reading import JournalContents, JournalFollower, TornTail, follow, read_journal

__all__ = [
    "DirectoryError",
    "DirectoryLock",
    "DirectoryLockedError",
    "Index",
    "IndexRow",
    "Indexed",
    "Journal",
    "JournalContents",
    "JournalError",
    "JournalFollower",
    "LockHolder",
    "TornTail",
    "follow",
    "open_index",
    "read_holder",
    "read_journal",
    "rebuild",
    "writable_directory",
]
