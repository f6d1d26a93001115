"""Pictures of runs: maps with their margins, curves, what changed; as SVG, PNG and PDF."""
