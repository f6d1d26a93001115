"""Texts as tokens: spans of them, where they may be cut, and what terminals may show."""
