"""needlemap: where in its context does a language model find a fact, and where does it lose it?"""

__version__ = "0.1.0"
