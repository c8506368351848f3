"""One model over two substrates: a graph and a device go in, a plan that explains itself and its results come out."""
