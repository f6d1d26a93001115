"""The page: one HTML file in which a reader explores runs, from map to single answers. It
fetches nothing.

Tables and words are HTML that Python writes (`written.py`): where scripts do not run, a
reader sees them one after the other. Scripts show those of the chosen view, colour them, and
draw maps, curves and trials from data (`payload.py`, `trials.py`). What runs is fixed by hash
in the page's own Content-Security-Policy: a text that got out of its place could neither run
nor ask the network. Data is compressed JSON in base64, which holds no letter that HTML minds.
The page is kept to a size that can still be mailed and opened.
"""
