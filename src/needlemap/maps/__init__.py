"""From records to a map and its statistics: pure functions."""
