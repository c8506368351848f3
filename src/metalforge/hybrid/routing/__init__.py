"""Where each op of a graph runs: a graph and a device profile go in, a plan that explains itself comes out."""
