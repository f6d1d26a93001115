"""How an answer is scored: each scorer is pure, but the judge, which asks a model."""
