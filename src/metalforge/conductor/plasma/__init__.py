"""Transport coefficients from the beginning of a plasma's run: a short stream goes in, ln D* and ln eta* come out.

A window, the first part of a run, is read frame by frame by one reservoir (`frames`, `heads`). What the whole run found
is the label (`corpus`, `making`), split by state point. `baselines` says what else can be made of a window, `tasks`
who is better, `stopping` what that saves. docs/protocols/plasma_heads.md was written before any test run was read.

This is the only room of the conductor that knows the plasma.
"""
