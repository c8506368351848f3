"""Typed stages and channels come in, a graph is checked and run: nothing is lost, and every figure has a source."""
