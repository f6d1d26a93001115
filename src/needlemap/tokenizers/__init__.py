"""Vocabularies by name: see `load`. Each module is one kind of vocabulary, imported only when needed."""
