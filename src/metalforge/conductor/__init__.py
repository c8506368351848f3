"""Many heads from one reservoir pass: features of a running chain go in, decisions with trust come out."""
