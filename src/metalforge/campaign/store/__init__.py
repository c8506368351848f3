"""What a campaign keeps on disk: records go in, one checked line each, and come back after any crash."""

from .directory import DirectoryError, DirectoryLock, DirectoryLockedError, read_holder, writable_directory
from .journal import Journal
from .lines import JournalError
from .reading import JournalFollower, read_journal

__all__ = [
    "DirectoryError",
    "DirectoryLock",
    "DirectoryLockedError",
    "Journal",
    "JournalError",
    "JournalFollower",
    "read_holder",
    "read_journal",
    "writable_directory",
]
