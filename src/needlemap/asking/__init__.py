"""A run while it is asked: what is left to ask, the loop, limits, retries, checks before and after."""
