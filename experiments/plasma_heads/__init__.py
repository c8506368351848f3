"""Training and judging the transport heads: the result of a whole run is the label, split by state point.

`corpus` and `making` hold and make runs, `training` fits heads, `baselines` are other estimates from a window, `tasks`
compares them, and `stopping` measures the work that heads save. docs/protocols/plasma_heads.md was written before any
test run was read.
"""
