from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from rlbench.harness.cli.completing import LINE, SHELL, completions
from rlbench.harness.cli.main import app, known_commands
from rlbench.harness.cli.shells import SCRIPTS, install, running_shell
from tests.harness.command import RLBENCH, assert_refused, call, launch

ROOT = typer.main.get_command(app)


def offered(line: str) -> list[str]:
    """The words that may end a line."""
    return [value for value, _ in completions(ROOT, line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlbench pred", ["predict"]),
        ("rlbench run --sys", ["--systems"]),
        ("rlbench doctor --st", ["--strict"]),
        ("rlbench systems re", ["remove"]),
        ("rlbench run --systems ve", ["ver"]),
        ("rlbench run --systems sync,ve", ["sync,ver"]),
        ("rlbench run --systems ver:pre", ["ver:preempt=", "ver:preempt.fill_stale="]),
        ("rlbench run --systems ver:preempt=ne", ["ver:preempt=never"]),
        ("rlbench run --systems ver:preempt=never:rollout.n", ["ver:preempt=never:rollout.num_steps="]),
        ("rlbench run --scenario emul", ["emulated", "emulated/"]),  # or a shell would end the word
        ("rlbench run --scenario emulated/gib", ["emulated/gibson", "emulated/gibson+mp3d"]),
        ("rlbench run --scenario emulated/open-fridge:ti", ["emulated/open-fridge:time_scale="]),
        ("rlbench run --scenario gym/CartPole-v1:kw", ["gym/CartPole-v1:kwargs."]),
        ("rlbench run --scenario gym/./env.py:Class:kw", []),  # it names code
        ("rlbench run --workload homogeneous,", ["homogeneous,heterogeneous"]),
        ("rlbench run --workload=het", ["--workload=heterogeneous"]),
        ("rlbench run --device em", ["emulated"]),
        ("rlbench run --protocol st", ["steady", "still"]),
        ("rlbench run --until suc", ["success>="]),
        ("rlbench results . --where sys", ["system="]),
        ("rlbench results --where system=ver:pre", ["system=ver:preempt=", "system=ver:preempt.fill_stale="]),
        ("rlbench results --where status=f", ["status=finished", "status=failed"]),
        ("rlbench results --where status=i", ["status=interrupted", "status=invalid"]),
        ("rlbench export --format js", ["json"]),
        ("rlbench list sc", ["scenarios"]),
        ("rlbench --install-completion z", ["zsh"]),
        ("rlbench report some/fold", []),  # the shell offers files
        ("rlbench nope ", []),
        ("rlbench run --systems 've", ["ver"]),
        ("rlbench run --systems nope:", []),
    ],
)
def test_what_may_end_a_line(line: str, expected: list[str]) -> None:
    """Commands, options, names and settings, whole words that begin with what was typed."""
    assert offered(line) == expected


def test_commands_and_options_say_what_they_do() -> None:
    """The first sentence of the help stands beside each; no command is left out."""
    found = dict(completions(ROOT, "rlbench "))
    assert list(found) == known_commands()
    assert found["run"].startswith("Measure every combination")
    assert all(found.values())


def started(line: str, *, shell: str = "bash") -> subprocess.CompletedProcess[str]:
    """The command as a shell's function starts it."""
    environment = {**os.environ, SHELL: shell, LINE: line}
    return subprocess.run(RLBENCH, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_is_answered(shell: str) -> None:
    """A line for each word, with a tab before what it means; nothing else, whatever the line holds."""
    assert started("rlbench export --format c", shell=shell).stdout == "csv\n"
    assert started("rlbench prof", shell=shell).stdout.startswith("profile\tMeasure a scenario on this machine")
    for line in ("rlbench run --scenario /", "'", "rlbench run --where", "\t"):
        ended = started(line, shell=shell)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_completion_loads_no_torch() -> None:
    """Nor pandas: whoever presses a key waits for it."""
    code = (
        "import sys, typer; from rlbench.harness.cli.completing import print_completions; "
        "from rlbench.harness.cli.main import app;"
        "print_completions(typer.main.get_command(app));"
        "print(sorted({'torch', 'pandas', 'pydantic'} & sys.modules.keys()))"
    )
    environment = {**os.environ, SHELL: "bash", LINE: "rlbench run --systems ver:preempt=ne"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "ver:preempt=never\n[]\n"


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("rlbench pred", ["predict"]),
        ("rlbench run --systems ver:pre", ["preempt=", "preempt.fill_stale="]),
        ("rlbench run --systems sync,ver:preempt=ne", ["never"]),
        ("rlbench run --workload=het", ["heterogeneous"]),
        ("rlbench run --systems sync,ve", ["sync,ver"]),
        ("rlbench report nothing-like-it", []),
    ],
)
def test_bash_replaces_what_it_takes_for_the_word(line: str, replies: list[str], tmp_path: Path) -> None:
    """Bash breaks words at colons and equals signs, and gets only what follows the last."""
    command = tmp_path / "rlbench"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(RLBENCH))} "$@"\n')
    command.chmod(0o755)
    words = shlex.quote(line.rsplit(maxsplit=1)[-1].replace(":", "\n:\n").replace("=", "\n=\n"))
    script = f"""
        eval {shlex.quote(SCRIPTS["bash"])}
        compopt() {{ :; }}
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        mapfile -t COMP_WORDS <<< {words}
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _rlbench {shlex.quote(str(command))}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout.split(), ended.stderr) == (replies, "")


@pytest.mark.parametrize(
    ("shell", "file", "start"),
    [
        ("bash", ".local/share/rlbench/completion.bash", ".bashrc"),
        ("zsh", ".local/share/rlbench/completion.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/rlbench.fish", None),
    ],
)
def test_installing(shell: str, file: str, start: str | None, tmp_path: Path) -> None:
    """The function is written, and what the shell reads at its start loads it: once, behind what was there."""
    if start is not None:
        (tmp_path / start).write_text("alias ll='ls -l'")
    assert [str(tmp_path / file) in install(shell, tmp_path, {}) for _ in range(2)] == [True, True]
    assert (tmp_path / file).read_text() == SCRIPTS[shell]
    if start is not None:
        first, *rest = (tmp_path / start).read_text().splitlines()
        assert first == "alias ll='ls -l'"
        assert rest == [f"[ -r '{tmp_path / file}' ] && . '{tmp_path / file}'  # completion of rlbench"]


def test_installing_where_the_environment_says(tmp_path: Path) -> None:
    """XDG's folders and zsh's own count."""
    install("zsh", tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data"), "ZDOTDIR": str(tmp_path)})
    install("fish", tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        ".zshrc",
        "config/fish/completions/rlbench.fish",
        "data/rlbench/completion.zsh",
    ]


def test_the_shell_is_named_or_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is none of the three is refused; without a name the shell that runs the command counts."""
    assert call("--show-completion", "fish").out == SCRIPTS["fish"]
    assert_refused(call("--install-completion", "bsh"), "no completion for bsh; did you mean 'bash'? known: bash, zsh")
    monkeypatch.setattr("psutil.Process.parents", lambda _: [])
    assert running_shell({"SHELL": "/usr/bin/zsh"}) == "zsh"
    with pytest.raises(ValueError, match="cannot tell which shell this is; name it"):
        running_shell({"SHELL": "/bin/tcsh"})
    monkeypatch.setenv("HOME", str(tmp_path))
    ended = launch("--install-completion", "bash", folder=tmp_path)
    assert ended.code == 0
    assert ".bashrc loads it" in ended.out
