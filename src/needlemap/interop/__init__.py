"""Make the prompts, scores and files of other tools byte for byte, and import their results."""
