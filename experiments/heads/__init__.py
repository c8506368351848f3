"""Training and judging the heads of the conductor, by docs/protocols/heads.md: `python -m experiments heads --help`.

`corpus_grids` says which chains, `corpus_runs` runs them, `corpus_file` keeps them; `labels` says what heads should
have said, `training` fits readouts, `baselines` are what they must beat, `evaluation` says whether they do.
"""
