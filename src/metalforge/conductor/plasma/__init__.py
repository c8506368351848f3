"""Transport coefficients from the beginning of a plasma's run: a short stream goes in, ln D* and ln eta* come out.

A window, the first part of a run, is read frame by frame by one reservoir (`frames`, `heads`), and may end the run
where its readings are trusted (`acting`, `scores`). `experiments/plasma_heads` trains and judges the heads.

This is the only room of the conductor that knows the plasma.
"""
