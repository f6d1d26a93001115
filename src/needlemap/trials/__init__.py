"""From settings to trials: every prompt of a run, its key, and answers that leak."""
