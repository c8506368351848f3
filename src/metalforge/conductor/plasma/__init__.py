"""Transport coefficients from the beginning of a plasma's run: a short stream goes in, ln D* and ln eta* come out.

A window, the first part of a run, is read frame by frame (`frames`) by the heads of one reservoir, and may end the run
where its readings are trusted (`heads`). `experiments/plasma_heads` trains and judges the heads.
"""
