"""What people submit: a batch script for Slurm, a manifest for KubeRay, a script for hosts that ssh reaches.

A record of what is wanted comes in, checked; text comes out. No secret is in it: tokens are made where it runs.
"""
