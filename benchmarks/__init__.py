"""Benchmarks of the source tree: one folder per suite, each row with a peer or a ceiling of the same run."""
