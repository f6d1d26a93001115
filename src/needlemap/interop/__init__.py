"""Other tools: their prompts, scores and files, byte for byte, and their results as runs."""
