"""A run of physics: where to measure next goes in as a steerer, observations come out."""
