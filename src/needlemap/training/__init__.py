"""Does the usable length grow while a model is trained? Recovery, and series of checkpoints."""
