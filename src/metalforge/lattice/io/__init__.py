"""Gauge configuration files: NERSC, ILDG, MILC and openQCD links come in, NERSC, ILDG and checkpoints go out.

Readers check sizes and checksums first, then hold the header's plaquette and link trace and SU(3) itself against the
links. A file that does not agree with itself raises `ConfigurationFileError`, which names the field or record.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from ._links import ConfigurationFileError, LoadedLinks
    from .checkpoint import read_checkpoint, write_checkpoint
    from .formats import guess_format, read_links, write_links

__all__ = [
    "ConfigurationFileError",
    "LoadedLinks",
    "guess_format",
    "read_checkpoint",
    "read_links",
    "write_checkpoint",
    "write_links",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
