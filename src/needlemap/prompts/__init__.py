"""Prompts as spans of texts: templates, frames, and where needles go."""
