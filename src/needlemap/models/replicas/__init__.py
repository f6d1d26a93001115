"""Several equal copies of a model, run by Dask, as one model."""
