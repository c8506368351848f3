"""Attacks on campaigns, pipelines, the command line and its files, from seeds: kills, damages, lines, schedules, soaks.

An attack returns an outcome with what it did and the faults it found; tests ask for few, more or many of them:

- short, in `make test`: no marker;
- `make test-chaos`, marker `chaos`: minutes;
- `make test-long PART=chaos-kills` and others, marker `long`: parts whose outcomes add up in one file (`ledger`), of
  which ``python -m chaos.table FILE`` writes docs/tables/chaos.md.
"""
