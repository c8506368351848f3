"""What a campaign keeps on disk: records go in, one checked line each, and come back after any crash."""
