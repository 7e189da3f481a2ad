"""Like a library of several processes: environments in a session of their own, orphaned, and a learner that raises.

The environments play for so many seconds, then wait for ever; half way the learner raises, if it is to, and the main
process does not notice. An iteration is reported, before the first step. The learner is there before that.
"""

import os
import sys
import time

import gymnasium

import rlbench_client

seconds, raises = float(sys.argv[1]), sys.argv[2] == "raises"
half_way, says_so = os.pipe()


def play() -> None:
    """Steps for a while, then waits."""
    env = rlbench_client.count(gymnasium.make("CartPole-v1"))
    rlbench_client.iteration()
    env.reset()
    begin, has_said = time.monotonic(), False
    while (played := time.monotonic() - begin) < seconds:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
        if played > seconds / 2 and not has_said:
            os.write(says_so, b".")
            has_said = True
        time.sleep(0.01)
    time.sleep(1000)


if not os.fork():
    os.read(half_way, 1)
    if raises:
        raise ValueError("the first summary has no loss")
    time.sleep(1000)
if not os.fork():
    os.setsid()
    if not os.fork():
        play()
    os._exit(0)
time.sleep(1000)
