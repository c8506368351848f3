"""Training and judging the heads of the conductor, by docs/protocols/heads.md: `python -m experiments heads --help`.

`corpus` lists, runs and holds chains. `labels` makes the label of every head, `training` fits readouts, `baselines` are
the predictors that they must beat, and `evaluation` scores both. `commands` are for these and `plasma_heads` alike;
`study` is what they call of each.
"""
