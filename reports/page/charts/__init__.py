"""The charts of the HTML report, one topic per module: pure functions from a summary to figures and their tables.

A figure is the dictionary that plotly.js takes. It holds the numbers of the summary unchanged: intervals are drawn as
lines from `low` to `high`, never as differences. `chart.py` defines what a chart is, `works.py` what is drawn together,
and `style.py` how systems and spans look.
"""
