"""Robustness: inputs and a network go in, perturbed inputs and their effect on every substrate come out.

A `Victim` is a classifier on its substrate; `fgsm`, `pgd` and `square_attack` make sequences that it misreads,
`random_signs` is the control, and `outcomes` counts with intervals.
"""

from .gradient_attacks import fgsm, pgd, random_signs, square_attack
from .outcomes import share, share_difference, transfer_rate
from .victim import Victim

__all__ = ["Victim", "fgsm", "pgd", "random_signs", "share", "share_difference", "square_attack", "transfer_rate"]
