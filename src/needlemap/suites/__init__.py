"""Tasks, scorers, presets and published files of the long-context benchmarks."""
