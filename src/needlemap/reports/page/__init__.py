"""The page: one HTML file in which a reader explores runs, from map to single answers. It
fetches nothing.

What it shows is made in Python (`payload.py`, `trials.py`); how it looks and moves is in
page.html, page.css and the scripts. What runs is fixed by hash in the page's own
Content-Security-Policy: a text that got out of its place could neither run nor ask the
network. Data is compressed JSON in base64, which holds no letter that HTML minds. Where
scripts do not run, a reader sees a plain table for each run. The page is kept to a size that
can still be mailed and opened.
"""
