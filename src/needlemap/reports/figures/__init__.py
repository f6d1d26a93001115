"""Figures of runs, drawn as SVG by ourselves and converted to PNG and PDF by vl-convert.

Vega-Lite was tried: a spec draws a map's cells and margins in half the lines, but it breaks no titles,
hatches nothing, keeps no labels apart and fits no width, so that most of what is here would stay (about
1,400 lines of 1,800, by estimate) and need workarounds in the SVG that comes back. So the drawing is ours.
"""
