"""metalforge: physics campaigns on whatever silicon you have, steered while they run.

Importing this package loads no compiled kernel, no device library and no web framework; each room loads what it needs
when it is first used.
"""

from importlib.metadata import version as _version

__all__ = ["__version__"]

__version__ = _version("metalforge")
