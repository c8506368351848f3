"""The NPU: a physical Akida board when there is one, and always the emulated AKD1000."""

from .discovery import EmulatedNpu, PhysicalNpu, discover

__all__ = ["EmulatedNpu", "PhysicalNpu", "discover"]
