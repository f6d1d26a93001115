"""What is hidden and asked. A task makes needles, question and reference from a seed; it scores nothing."""
