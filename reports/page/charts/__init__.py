"""The charts of the HTML report, one idea a module: pure functions from a summary to figures and their tables.

A figure is the dictionary that plotly.js takes. Its numbers are those of the summary, unchanged: intervals are drawn as
lines from `low` to `high`, never as differences. `chart.py` says what a chart is, `works.py` what is drawn together,
`style.py` what stands for what.
"""
