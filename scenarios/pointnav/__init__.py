"""PointGoal navigation in generated floor plans, embedded: needs no simulator."""

from rlbench.scenarios.pointnav.scenario import FAMILY, PointNav

__all__ = ["FAMILY", "PointNav"]
