"""Asks Slurm's own commands. A call blocks for at most `ANSWER_LIMIT_S`: the controller may be away for a while."""

from __future__ import annotations

import getpass
import subprocess

ANSWER_LIMIT_S = 60.0


def queued() -> dict[str, str]:
    """The states of this user's jobs that have not ended, by their ids, `12` or `12_3`. Raises ValueError."""
    words = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i|%T"]
    lines = ask(words).split()
    return dict(line.strip().split("|", 1) for line in lines if "|" in line)


def how_it_ended(job: str) -> str:
    """How a job ended, in Slurm's words; Slurm forgets a job some minutes after its end."""
    told = job_fields(job)
    if not told:
        return "is unknown to Slurm by now"
    state, why, code = told.get("JobState", "?"), told.get("Reason", "None"), told.get("ExitCode", "?")
    return f"ended as {state}" + (f" ({why})" if why != "None" else f" (exit code {code})")


def job_fields(job: str) -> dict[str, str]:
    """What Slurm knows of a job, by Slurm's field names; empty where it has forgotten the job or does not answer."""
    try:
        said = ask(["scontrol", "--oneliner", "show", "job", job])
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in said.split() if "=" in word)


def ask(words: list[str]) -> str:
    """What one of Slurm's commands prints. Raises ValueError with the reason where it fails."""
    try:
        done = subprocess.run(  # noqa: S603  Slurm's own
            words, capture_output=True, encoding="utf-8", errors="replace", timeout=ANSWER_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{words[0]}: {error}; is this a login node of a Slurm cluster?") from None
    if done.returncode:
        raise ValueError(f"{words[0]}: {last_line(done.stderr)}")
    return done.stdout


def last_line(said: object) -> str:
    """The last line, other than an empty one, of what a command has said."""
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[-1] if lines else "it failed"
