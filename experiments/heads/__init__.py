"""Training and judging the heads of the conductor, by docs/protocols/heads.md: `python -m experiments heads --help`.

`corpus_grids` lists the chains, `corpus_runs` runs them and `corpus_file` holds them. `labels` makes the label of every
head, `training` fits readouts, `baselines` are the predictors that they must beat, and `evaluation` scores both.
`theory` is what the commands know of a theory, with `lattice` and `plasma_heads.study` as the two there are.
"""
