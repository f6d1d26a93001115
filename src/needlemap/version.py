"""The version of this package, and of the records that it writes."""

__version__ = "0.1.0"
SCHEMA = 2  # of records; 1: keys held the cell and seeded the sampling, and each equal prompt was asked
