"""The parts of an SVG picture, in points, and how much room a text takes.

Figures are drawn by ourselves and converted to PNG by resvg and to PDF by vl-convert, which is
large and therefore an extra. Vega-Lite was tried: a spec draws a map's cells and margins in half
the lines, but it breaks no titles, hatches nothing, keeps no labels apart and fits no width, so
that most of what is here would stay and need workarounds in the SVG that comes back.

There is one font, Liberation Sans, in `fonts` here and in the library that makes PDF; Arial
and Helvetica, which a reader of an SVG may have instead, are as wide letter by letter. Chinese
needs a CJK font where it is drawn.
"""
