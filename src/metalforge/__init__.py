"""metalforge: physics campaigns on whatever silicon you have, steered while they run.

Importing this package loads no compiled kernel, no device library and no web framework; each room loads what it needs
when it is first used.

    from metalforge import campaign
    found = campaign.run("tiny")
"""

from importlib.metadata import version as _version

from .core.on_demand import on_demand as _on_demand

__all__ = [
    "__version__",
    "campaign",
    "conductor",
    "hybrid",
    "lattice",
    "pipeline",
    "reservoir",
    "statistics",
    "substrates",
]

__version__ = _version("metalforge")
__getattr__, __dir__ = _on_demand(__name__, __all__)
