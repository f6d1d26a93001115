"""One server beside another: the same prompts in random order, until a verdict."""
