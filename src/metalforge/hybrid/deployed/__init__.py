"""Models on disk with all that inference needs: raw inputs go in, what the model says comes out, in any process.

`deploy` writes a network, an estimator or a plan; `load` reads it and `predict` runs it where it was meant to run.
"""

from .model import Deployed, deploy
from .reader import load

__all__ = ["Deployed", "deploy", "load"]
