"""Other tools' results: one module a format, each from bytes to rows; `imported.py` makes runs of them.

Nothing here asks a model or scores again: a row keeps the score that was published, on its own scale.
"""
