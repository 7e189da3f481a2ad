"""Trains with RLlib, in its own virtual environment: `python train.py SETTINGS` (as JSON).

Runners, processes of Ray, step environments and choose actions. This process collects their rollouts, waiting at most
`poll_s` for all of them, and sends them to the learner in batches; it drops a batch while three are on their way. The
learner's process turns a batch into tensors, learns from it and reports: RLlib's own count of env steps learned
includes a step that it adds to each rollout for the value after the last one.
"""

import json
import math
import os
import secrets
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import rlbench_client

LONGEST_FOLDER = 40
"""Characters; Ray adds 64 for the path of a socket, which may have at most 107."""
MOST_OBJECTS_BYTES = 2**33
LEAST_OBJECTS_BYTES = 2**29
NUM_BATCHES_KEPT = 8
"""Batches that fit into Ray's shared memory: on their way to the learner, at it, and as rollouts for the next one."""
FLOAT_BYTES = 4
CONVOLUTIONS = {
    "conv": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}
"""Channels, kernel and stride of each layer."""
NUM_UNITS = 512
NUMBERS = (64, 64)
"""Units of each layer for vectors."""
RECURRENT = {"conv"}
ADAM_EPS, EPOCHS = "adam_eps", "epochs"
"""Keys of what the learner is told in addition to RLlib's own settings."""


def make_env(image_order: str) -> Any:
    """An environment of the run as RLlib's networks want it: an image float32 [H, W, C] in 0..1, or a vector."""
    import gymnasium
    import numpy as np

    from rlbench_client.plain import plain

    class ChannelsLast(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Shows pixels in this form; leaves `info` empty, which nobody reads but RLlib would send to the learner."""

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            shape = env.observation_space.shape
            if len(shape) == 3:
                channels, height, width = shape
                self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (height, width, channels), np.float32)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Begins an episode; ignores RLlib's seed, since environments have seeds of their own."""
            del seed
            observation, _ = self.env.reset(options=options)
            return self._shown(observation), {}

        def step(self, action: Any) -> Any:
            """Applies one action."""
            observation, reward, terminated, truncated, _ = self.env.step(action)
            return self._shown(observation), reward, terminated, truncated, {}

        def _shown(self, observation: Any) -> Any:
            if observation.ndim == 1:
                return observation
            return np.divide(observation.transpose(1, 2, 0), np.float32(255), order="C")

    return ChannelsLast(plain(rlbench_client.make_env(), image_order=image_order, actions="row"))


class Reporting:
    """What is added to a learner of RLlib: it reports each batch that it has learned."""

    config: Any
    _weights_seq_no: int
    """Number of batches up to and including the present one."""
    _num_learned = 0
    _lags: Any = ()

    def build(self) -> None:
        """Makes the learner. Its process ends when any of its threads raises; RLlib would go on without learning."""
        threading.excepthook = end_process
        super().build()  # type: ignore[misc]  # the learner's

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Sets Adam's epsilon to the run's; RLlib has no setting for it."""
        super().configure_optimizers_for_module(module_id, config)  # type: ignore[misc]
        for _, optimizer in self.get_optimizers_for_module(module_id):  # type: ignore[attr-defined]
            for group in optimizer.param_groups:
                group["eps"] = self.config.learner_config_dict[ADAM_EPS]

    def _update(self, batch: Any, **options: Any) -> Any:
        """Takes an optimiser step on a whole batch, and notes its size and lags."""
        answer = super()._update(batch, **options)  # type: ignore[misc]
        (columns,) = batch.values()
        is_step = columns["loss_mask"].bool()  # false for steps that were added or padded
        acted_with = columns["weights_seq_no"][is_step]
        self._num_learned = len(acted_with)
        self._lags = (self._weights_seq_no - 1 - acted_with) * self.config.learner_config_dict[EPOCHS]
        return answer

    def after_gradient_based_update(self, **options: Any) -> None:
        """Reports a batch when all its epochs are learned."""
        super().after_gradient_based_update(**options)  # type: ignore[misc]
        rlbench_client.learned(self._num_learned, lag=self._lags.tolist())
        rlbench_client.reused((self.config.learner_config_dict[EPOCHS] - 1) * self._num_learned)
        rlbench_client.iteration()


def end_process(raised: threading.ExceptHookArgs) -> None:
    """Ends the process when a thread has raised."""
    threading.__excepthook__(raised)
    sys.stderr.flush()
    os._exit(1)


def reporting(learner: type) -> type:
    """Makes a subclass of a learner that reports."""
    return type(f"Reporting{learner.__name__}", (Reporting, learner), {})


def orthogonal_gates(weight: Any) -> None:
    """Initialises weights of an LSTM, each gate by itself."""
    from torch.nn import init

    for gate in weight.chunk(4):
        init.orthogonal_(gate)


def convolutions(policy: str, shape: tuple[int, ...]) -> list[list[Any]]:
    """RLlib's `conv_filters` for pixels of that shape [C, H, W].

    The last convolution is as large as its input: it is the fully connected layer, which RLlib's networks lack here.
    """
    layers: list[list[Any]] = []
    height, width = shape[1:]
    for channels, kernel, stride in CONVOLUTIONS[policy]:
        layers.append([channels, kernel, stride, "valid"])
        height, width = ((size - kernel) // stride + 1 for size in (height, width))
    return [*layers, [NUM_UNITS, [height, width], 1, "valid"]]


def network(told: dict[str, Any], shape: tuple[int, ...], is_continuous: bool) -> Any:
    """The network for a vector [K], or pixels of that shape [C, H, W]."""
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    free_log_std = is_continuous and told["action_std"] == "shared"
    if len(shape) == 1:
        return DefaultModelConfig(
            fcnet_hiddens=list(NUMBERS),
            fcnet_activation="tanh",
            fcnet_kernel_initializer="orthogonal_",
            fcnet_kernel_initializer_kwargs={"gain": 2**0.5},
            fcnet_bias_initializer="zeros_",
            vf_share_layers=True,
            free_log_std=free_log_std,
        )
    return DefaultModelConfig(
        free_log_std=free_log_std,
        conv_filters=convolutions(told["policy"], shape),
        conv_activation="relu",
        conv_kernel_initializer="orthogonal_",
        conv_kernel_initializer_kwargs={"gain": 2**0.5},
        conv_bias_initializer="zeros_",
        vf_share_layers=True,
        use_lstm=told["policy"] in RECURRENT,
        lstm_cell_size=NUM_UNITS,
        lstm_kernel_initializer=orthogonal_gates,
        lstm_bias_initializer="zeros_",
        # A rollout has one step more if another environment of its runner was reset, and RLlib adds one to each.
        # Sequences are padded to this length, and a longer one is cut in two.
        max_seq_len=told["num_steps"] + 2,
    )


def configuration(told: dict[str, Any], shape: tuple[int, ...], is_continuous: bool) -> Any:
    """RLlib's configuration; settings not named here keep their defaults."""
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.tune.registry import register_env

    learn = told["learn"]
    config = {"APPO": APPOConfig, "IMPALA": IMPALAConfig}[told["algorithm"]]()
    image_order = told["image_order"]
    register_env("rlbench", lambda _: make_env(image_order))
    config = (
        # The environments clip what is chosen; RLlib would stretch it to their bounds instead.
        config.environment("rlbench", disable_env_checking=True, normalize_actions=False, clip_actions=False)
        .env_runners(
            num_env_runners=told["num_workers"],
            num_envs_per_env_runner=told["num_envs"] // told["num_workers"],
            rollout_fragment_length=told["num_steps"],
        )
        .learners(
            num_learners=1,
            num_gpus_per_learner=int(told["device"] != "cpu"),
            num_cpus_per_learner=num_cores(),  # it computes with as many threads
            learner_class=reporting(config.get_default_learner_class()),
            learner_config_dict={ADAM_EPS: learn["adam_eps"], EPOCHS: learn["epochs"]},
        )
        .training(
            train_batch_size_per_learner=told["batch"],
            timeout_s_sampler_manager=told["poll_s"],
            num_epochs=learn["epochs"],
            lr=learn["learning_rate"],
            gamma=learn["discount"],
            vtrace_clip_rho_threshold=learn["rho"],
            vtrace_clip_pg_rho_threshold=learn["rho"],
            vf_loss_coeff=learn["value_coef"],  # its loss is half of the squared error, as ours
            entropy_coeff=learn["entropy_coef"],
            grad_clip=learn["max_grad_norm"],
            grad_clip_by="global_norm",
        )
        .rl_module(model_config=network(told, shape, is_continuous))
        .fault_tolerance(restart_failed_env_runners=False)
        .debugging(seed=told["seed"], log_level="ERROR")
    )
    if told["algorithm"] == "APPO":
        config.training(
            clip_param=learn["clip"],
            use_kl_loss=False,
            use_circular_buffer=False,  # it would learn each batch up to twice
            # The target network is updated after as many batches as the product of these three.
            target_network_update_freq=told["target_every"],
            circular_buffer_num_batches=1,
            circular_buffer_iterations_per_batch=1,
        )
    return config


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def prepare() -> Path:
    """Sets what must be set before Ray is imported. Returns Ray's folder, by a path that is short enough for sockets.

    The folder lies in the run's folder for temporary files, which the harness removes. If its path is too long, the
    returned path names it as an open file of this process, which lives as long as Ray.
    """
    folder = Path(tempfile.gettempdir()) / "ray"
    folder.mkdir()
    if len(str(folder)) > LONGEST_FOLDER:
        folder = Path(f"/proc/{os.getpid()}/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}")
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="utf-8")
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),  # else it would leave one in the home folder
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # this makes it listen at 127.0.0.1 alone
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else its processes give way to this one, which looks for rollouts all the time
    }
    return folder


def start_ray(told: dict[str, Any], folder: Path, batch_bytes: int) -> None:
    """Starts a Ray for this run alone."""
    import ray

    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if told["device"] != "cpu":
        number = int(told["device"].partition(":")[2] or 0)
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number] if gpus != [""] else str(number)
    room = max(shutil.disk_usage("/dev/shm").free // 2, LEAST_OBJECTS_BYTES)  # noqa: S108  else Ray takes the disk
    ray.init(
        address="local",
        num_cpus=told["num_workers"] + num_cores() + 2,
        num_gpus=int(told["device"] != "cpu"),
        object_store_memory=min(max(NUM_BATCHES_KEPT * batch_bytes, LEAST_OBJECTS_BYTES), MOST_OBJECTS_BYTES, room),
        include_dashboard=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
    )


def main() -> None:
    """Trains until it is ended."""
    told, folder = json.loads(sys.argv[1]), prepare()
    from ray.rllib.core.learner import learner_group
    from ray.train.backend import BackendConfig
    from ray.tune.trainable import trainable

    # One learner needs no process group of torch's, whose store would listen at all addresses.
    learner_group._get_backend_config = lambda _: BackendConfig()  # noqa: SLF001
    trainable.DEFAULT_STORAGE_PATH = str(folder / "results")  # else it would leave a folder in the home folder
    from gymnasium.spaces import Box

    from rlbench_client.plain import plain

    env = plain(rlbench_client.make_env(), image_order=told["image_order"])  # it only tells its spaces, is never reset
    shape, is_continuous = env.observation_space.shape, isinstance(env.action_space, Box)
    env.close()
    start_ray(told, folder, FLOAT_BYTES * told["batch"] * math.prod(shape))
    algorithm = configuration(told, shape, is_continuous).build_algo()
    while True:
        algorithm.train()


if __name__ == "__main__":
    main()
