"""Lets rlbench count what a trainer does: in its environments, and what only the trainer can tell.

    import rlbench_client

    env = rlbench_client.count(gymnasium.make("CartPole-v1"))   # counts env steps, frames, episodes and their times
    rlbench_client.learned(num_env_steps)                       # optional, like all that follows
    rlbench_client.iteration()

Needs the standard library and numpy; `make_env` also needs rlbench. In a process that `rlbench run` did not start,
`count` returns the environment itself, `make_env` raises RuntimeError, and the other calls return at once.
"""

from rlbench_client.counted import count
from rlbench_client.given import make_env
from rlbench_client.reports import discarded, in_flight, iteration, learned, reused, span

__all__ = ["count", "discarded", "in_flight", "iteration", "learned", "make_env", "reused", "span"]
