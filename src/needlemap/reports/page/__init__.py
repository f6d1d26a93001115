"""The page: one self-contained HTML file in which a reader explores runs, from map to single answers.

What it shows is made here, in Python (`payload.py`, `trials.py`); how it looks and moves is in page.html,
page.css and the scripts beside it. See docs/report.md.
"""
