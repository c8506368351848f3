"""Chains on a GPU: kernels that say who does which site, over the headers that the CPU compiles, and their engine."""
