"""Gauge configuration files: NERSC, ILDG, MILC and openQCD links come in, NERSC, ILDG and checkpoints go out.

Readers check sizes and checksums first, then hold the header's plaquette and link trace and SU(3) itself against the
links. A file that does not agree with itself raises `ConfigurationFileError`, which names the field or record.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from ._links import ConfigurationFileError, Dims, Links, LoadedLinks, Precision
    from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
    from .foreign import read_milc, read_openqcd
    from .formats import guess_format, read_links, write_links
    from .ildg import read_ildg, write_ildg
    from .nersc import read_nersc, write_nersc

__all__ = [
    "Checkpoint",
    "ConfigurationFileError",
    "Dims",
    "Links",
    "LoadedLinks",
    "Precision",
    "guess_format",
    "read_checkpoint",
    "read_ildg",
    "read_links",
    "read_milc",
    "read_nersc",
    "read_openqcd",
    "write_checkpoint",
    "write_ildg",
    "write_links",
    "write_nersc",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
