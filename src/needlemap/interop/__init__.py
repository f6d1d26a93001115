"""Other tools, spoken exactly: their prompts, scores and files, so that anyone can check us against them."""
