"""The one error of this room: a configuration file that is not what it says, or that cannot be written."""

from metalforge.core.errors import MetalforgeError

__all__ = ["ConfigurationFileError"]


class ConfigurationFileError(MetalforgeError):
    """A gauge configuration file that cannot be trusted, read or written; the message names the field or record."""
