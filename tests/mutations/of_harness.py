"""Changes to `harness/`."""

from __future__ import annotations

from tests.mutations.change import Change

CHANGES = (
    Change(
        name="learned-count",
        file="harness/metering/meter.py",
        old='block.add("learned", num_env_steps)',
        new='block.add("learned", num_env_steps + 1)',
        breaks="a rank counts an env step too many with each batch that it learns",
    ),
    Change(
        name="span-pause",
        file="harness/metering/meter.py",
        old="self._open[-1] = (outer, now)",
        new="self._open[-1] = (outer, since)",
        breaks="seconds of an inner span count in the outer one as well",
    ),
    Change(
        name="budget-iteration",
        file="harness/contract/budget.py",
        old="limit is not None and value >= limit for limit, value",
        new="limit is not None and value > limit for limit, value",
        breaks="a run goes on for an iteration after its budget is spent",
    ),
    Change(
        name="ddppo-window",
        file="harness/metering/window.py",
        old="return len(parts) - 5, None",
        new="return len(parts) - 4, None",
        breaks="4 of 10 iterations count, and not 5",
    ),
    Change(
        name="mser",
        file="harness/metering/window.py",
        old="/ len(rates) ** 2",
        new="/ len(rates)",
        breaks="MSER drops as much of a run as it may",
    ),
    Change(
        name="who-was-told-first",
        file="harness/processes/outcome.py",
        old="sorted(told, key=lambda one: one.iteration)",
        new="sorted(told, key=lambda one: -one.iteration)",
        breaks="the rank that was told to stop last is named as the first",
        tests=("tests/harness/processes/test_told.py",),
    ),
    Change(
        name="sweep-lock",
        file="harness/run/sweep.py",
        old="fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        new="fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        breaks="two may run the cells of one sweep at once",
        tests=("tests/harness/faults/test_folders.py", "tests/harness/faults/test_moved.py"),
    ),
    Change(
        name="lost-unlink",
        file="harness/processes/shared_memory.py",
        old="                one.path.unlink()",
        new="                one.path.exists()",
        breaks="shared memory of killed simulators stays",
    ),
    Change(
        name="power-of-gpus",
        file="harness/machine/telemetry/readings.py",
        old='self._reading(sum, self._means("power_w"',
        new='self._reading(fmean, self._means("power_w"',
        breaks="the power of several GPUs is said as that of one",
    ),
    Change(
        name="nearest-sample",
        file="harness/machine/telemetry/readings.py",
        old="rows[max(0, after - 1) : after + 1]",
        new="rows[max(0, after - 1) : max(1, after)]",
        breaks="samples of two machines are joined with the one before, not with the nearest",
        tests=("tests/harness/launch/nodes/test_gathered.py",),
    ),
    Change(
        name="clock-middle",
        file="harness/launch/nodes/clocks.py",
        old="middle = (sent_s + received_s) / 2",
        new="middle = sent_s",
        breaks="the clock of a node is wrong by half of a ping",
        tests=("tests/harness/launch/nodes/test_gathered.py", "tests/harness/launch/nodes/test_channel.py"),
    ),
    Change(
        name="noise-floor",
        file="harness/commands/gate/command.py",
        old="half = math.sqrt(ratio.high / ratio.low) - 1",
        new="half = ratio.high / ratio.low - 1",
        breaks="a gate says that only twice as large a change is seen",
    ),
    Change(
        name="kept-profiles",
        file="harness/commands/predict/from_run.py",
        old="if not os.path.lexists(out / name))",
        new="if os.path.basename(name))",
        breaks="the profile of a run is written over one that predictions were made of",
        tests=(
            "tests/harness/commands/profile/test_command.py",
            "tests/harness/hostile/test_untrusted_runs.py",
        ),
    ),
    Change(
        name="first-reset",
        file="harness/commands/profile/steps.py",
        old="reset_s=seconds[is_reset & ~is_first]",
        new="reset_s=seconds[is_reset]",
        breaks="the first reset, which loads, counts in a profile",
    ),
    Change(
        name="reproduced-ratio",
        file="harness/commands/reproduce/claims.py",
        old="error = predicted / published - 1",
        new="error = published / predicted - 1",
        breaks="the error of a reproduced ratio is turned round",
    ),
)
