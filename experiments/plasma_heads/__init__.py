"""Training and judging the transport heads: what the whole run found is the label, split by state point.

`corpus` and `making` hold and make runs, `training` fits heads, `baselines` says what else can be made of a window,
`tasks` who is better, `stopping` what that saves. docs/protocols/plasma_heads.md was written before any test run was
read.
"""
