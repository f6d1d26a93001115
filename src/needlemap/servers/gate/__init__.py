"""A gate in one file, which the test suites of inference engines copy."""
