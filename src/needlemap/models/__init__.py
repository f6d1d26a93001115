"""Back ends: each reaches one kind of model and is imported only when it is named."""
