"""The version of the package, and that of the records that it writes."""

__version__ = "0.1.0"
SCHEMA = 2  # 1: keys held the cell and seeded the sampling, and each equal prompt was asked
