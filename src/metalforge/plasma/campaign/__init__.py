"""The Yukawa plasma as the physics of a campaign: the table `[plasma]` of a spec."""

from .theory import Plasma

__all__ = ["Plasma"]
