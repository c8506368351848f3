"""Reproducible experiments: a name goes in, rows of measured figures come out."""
