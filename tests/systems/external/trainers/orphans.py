"""Like a library of several processes: environments in a session of their own, orphaned, and a learner that raises.

The environments play for so many seconds, then wait for ever; the learner raises, if it is to, and the main process
does not notice.
"""

import os
import sys
import time

import gymnasium

import rlbench_client


def play(seconds: float) -> None:
    """Steps for a while, then waits."""
    env = rlbench_client.count(gymnasium.make("CartPole-v1"))
    env.reset()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
        time.sleep(0.001)
    time.sleep(1000)


seconds, raises = float(sys.argv[1]), sys.argv[2] == "raises"
if not os.fork():
    os.setsid()
    if not os.fork():
        play(seconds)
    os._exit(0)
if not os.fork():
    time.sleep(1)
    if raises:
        raise ValueError("the first summary has no loss")
    time.sleep(1000)
time.sleep(1000)
