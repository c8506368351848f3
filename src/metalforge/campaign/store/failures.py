"""The errors of a campaign's directory: its journal, and who may write it."""

from metalforge.core.errors import MetalforgeError

__all__ = ["DirectoryError", "DirectoryLockedError", "JournalError"]


class JournalError(MetalforgeError):
    """A journal that cannot be written, or that does not agree with itself; what it held before is still there."""


class DirectoryError(MetalforgeError):
    """A directory that a campaign cannot use."""


class DirectoryLockedError(DirectoryError):
    """Another process is writing in this directory."""
