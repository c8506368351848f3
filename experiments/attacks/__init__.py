"""Attacks on classifiers of sequences: inputs and a network go in, perturbed inputs come out.

A `Victim` is a classifier on its substrate; `fgsm`, `pgd` and `square_attack` make sequences that it misreads, and
`random_signs` is the control.
"""

from .gradient_attacks import fgsm, pgd, random_signs, square_attack
from .victim import Victim

__all__ = ["Victim", "fgsm", "pgd", "random_signs", "square_attack"]
