"""Stages of the QCD graph of `qcd_pipeline.toml`."""
