"""What a campaign keeps on disk: records go in, one checked line each, and come back after any crash."""

from .directory import writable_directory
from .failures import DirectoryError, DirectoryLockedError, JournalError
from .journal import Journal
from .lock import DirectoryLock, LockHolder, read_holder
from .reading import JournalContents, JournalFollower, TornTail, follow, read_journal

__all__ = [
    "DirectoryError",
    "DirectoryLock",
    "DirectoryLockedError",
    "Journal",
    "JournalContents",
    "JournalError",
    "JournalFollower",
    "LockHolder",
    "TornTail",
    "follow",
    "read_holder",
    "read_journal",
    "writable_directory",
]
