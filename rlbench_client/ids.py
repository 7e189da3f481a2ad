"""The run's own environments by gymnasium's ids: `gymnasium.make("rlbench_client.ids:rlbench-v0")`.

gymnasium imports this module when it reads such an id; nothing else does, because the module needs gymnasium.
"""

from gymnasium.envs.registration import register

register(id="rlbench-v0", entry_point="rlbench_client.given:make_env", disable_env_checker=True)
register(
    id="rlbench-box-v0",
    entry_point="rlbench_client.given:make_env",
    kwargs={"box": True},
    disable_env_checker=True,
)
