"""PettingZoo's parallel environments as a scenario: several agents that act together, all by one policy.

`families.py` has the entry point, `scenario.py` the settings, `published.py` what they are by default; `finding.py`
finds the module that a name means, `making.py` makes environments and tries them, `alone.py` makes one of a single
agent Gymnasium's. What names code, and arguments, are those of `scenarios/gym`.
"""
