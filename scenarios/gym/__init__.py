"""Any Gymnasium environment as a scenario: by its id, by a class in a file, of MuJoCo, dm_control or Minigrid.

`families.py` has the entry points, `scenario.py` the settings, `published.py` what they are by default; `making.py`
makes environments from text and tries them, `named.py` finds the code that a text names. Imports `harness/contract`
alone.
"""
