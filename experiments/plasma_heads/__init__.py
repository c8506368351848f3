"""Training and judging the transport heads: the result of a whole run is the label, split by state point.

`corpus` holds runs, `corpus_runs` makes them, `training` fits heads, and `baselines` are other estimates from a window.
`tasks` compares heads with baselines, and `early_stop` measures the work that they save. docs/protocols/plasma_heads.md
was written before any test run was read.
"""
