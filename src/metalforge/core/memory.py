"""Memory is asked about before it is taken: the system promises more than it has, and ends the process later."""

import os
import resource

from .errors import PlacementError


def memory_bytes() -> int | None:
    """Return the memory of this machine, or the limit of this process (`ulimit -v`) where that is less."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return installed if limit == resource.RLIM_INFINITY else min(installed, limit)


def check_memory(what: str, needed: int) -> None:
    """Return if so many bytes can be there at all; otherwise raise, naming what they are for."""
    here = memory_bytes()
    if here is not None and needed > here:
        raise PlacementError(f"{what} would take {needed / 2**30:,.1f} GiB of memory. Here are {here / 2**30:,.1f} GiB")
