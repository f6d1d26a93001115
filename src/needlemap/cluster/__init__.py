"""Copies of a model on this machine, on Slurm or in a Dask cluster."""
