"""How a report is drawn: as text, JSON, a sheet of the page, Markdown, JUnit, a data frame.

Each renderer draws any `Report`. None knows a finding, so a new kind of finding needs none of
them, and a new renderer none of the findings.
"""
