"""A look at the machine: every substrate plug-in is asked what it finds. Never raises, initialises no device."""

from .plugins import load_plugins, warn_broken
from .substrate import Discovery, Kind, Missing, Substrate

GROUP = "metalforge.substrates"
"""Entry-point group; a plug-in is a function without arguments that returns a `Discovery`."""

_ORDER = (Kind.CPU, Kind.GPU, Kind.NPU)


def discover() -> Discovery:
    """Return everything the plug-ins found, CPUs first, and everything they missed, with reasons."""
    found = Discovery()
    for name, plugin in load_plugins(GROUP).items():
        try:
            part = plugin()
            if not isinstance(part, Discovery) or not all(isinstance(s, Substrate) for s in part.substrates):
                raise TypeError("discover() must return a metalforge.core.Discovery of substrates")
        except Exception as error:
            # One stranger's bug must not hide the rest of the machine.
            message = f"substrate plug-in `{name}` failed: {type(error).__name__}: {error}"
            warn_broken(message)
            part = Discovery(missing=(Missing(what=name, reason=message),))
        found += part
    ordered = sorted(found.substrates, key=lambda s: _ORDER.index(s.info.kind))
    return Discovery(substrates=tuple(ordered), missing=found.missing)
