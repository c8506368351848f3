"""Campaigns on many machines: a Ray cluster's nodes as lanes, a supervisor that outlives the terminal."""
