"""What lies on disk: records, run.json, a run's folder and its families."""
