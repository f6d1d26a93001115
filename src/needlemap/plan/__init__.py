"""In which order a run's prompts are asked, so that they share what they have in common."""
