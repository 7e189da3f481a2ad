"""The workflows to copy do what they say: each step is run, in a shell, of a user's package that knows no rlbench."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlbench.harness.machine import virtualenvs
from tests.harness.command import QUICK, RLBENCH
from tests.harness.commands.gate import toy_repository
from tests.harness.commands.gate.toy_repository import commit, git

WORKFLOWS = Path(__file__).parents[1] / "docs" / "ci"
WORK = " ".join(("--systems sync --gpus 1 --iterations 4", *QUICK))
HERE = {"WORK": WORK, "NIGHT": "--seeds 0,1", "BUDGET": "1"}
"""In place of the workflow's own: a cell of seconds."""
GITHUB = {
    "github.base_ref": "main",
    "github.repository": "they/theirs",
    "github.event.pull_request.number": "7",
    "github.token": "secret",
    "github.run_id": "1",
}
CONDITIONS: dict[str | None, Callable[[Path], bool]] = {
    None: lambda _: True,
    "always()": lambda _: True,
    "always() && hashFiles('gate.md') != ''": lambda folder: (folder / "gate.md").exists(),
    "always() && hashFiles('gate.md') != '' && github.event.pull_request.head.repo.full_name == github.repository": (
        lambda folder: (folder / "gate.md").exists()
    ),
}
GH = """#!{python}
import json, sys
from pathlib import Path

comments = Path("{comments}")
there = json.loads(comments.read_text()) if comments.exists() else []
api, option, *words = sys.argv[1:]
assert api == "api"
if option == "--paginate":
    path, jq, asked = words
    assert (path, jq) == ("repos/they/theirs/issues/7/comments", "--jq")
    assert asked == '.[] | select(.body | startswith("<!-- rlbench gate -->")) | .id'
    print(*[each["id"] for each in there if each["body"].startswith("<!-- rlbench gate -->")], sep="\\n")
else:
    method, path, field, given = words
    assert (option, field) == ("--method", "--field")
    body = Path(given.removeprefix("body=@")).read_text()
    if method == "POST":
        assert path == "repos/they/theirs/issues/7/comments"
        there.append({{"id": 40 + len(there), "body": body}})
    else:
        assert method == "PATCH"
        (found,) = [each for each in there if path == f"repos/they/theirs/issues/comments/{{each['id']}}"]
        found["body"] = body
    comments.write_text(json.dumps(there))
"""
"""What GitHub's `gh` does with comments of a pull request, kept in a file."""


class User:
    """A user's repository, its remote, and a machine that runs its workflows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = folder / "remote.git"
        repository = toy_repository.make_repository(folder / "theirs")
        backend = repository / "backend.py"
        backend.write_text(backend.read_text().replace("[console_scripts]\\nrlbench = toy:main\\n", ""))
        commit(repository, "main", 100.0)
        commit(repository, "pull", 90.0)
        git(folder, "clone", "--quiet", "--bare", str(repository), str(self.remote))
        self.python = folder / "python"
        virtualenvs.make(self.python, "a test's")  # as a runner's Python: `pip install .` must not change ours
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "rlbench").symlink_to(RLBENCH)
        (self.bin / "gh").write_text(GH.format(python=sys.executable, comments=folder / "comments.json"))
        (self.bin / "gh").chmod(0o700)

    def variables(self) -> dict[str, str]:
        """What a step has in its environment."""
        path = os.pathsep.join(map(str, (self.python / "bin", self.bin, "/usr/local/bin", "/usr/bin", "/bin")))
        cache, summary = self.folder / "cache", self.folder / "summary.md"
        return {
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "PATH": path,
            "HOME": str(self.folder),
            "TMPDIR": os.environ["TMPDIR"],
            "XDG_CACHE_HOME": str(cache),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_ACTIONS": "true",
            **HERE,
        }

    def checkout(self, branch: str, name: str) -> Path:
        """A clone of a branch, as a runner makes it."""
        folder = self.folder / name
        git(self.folder, "clone", "--quiet", "--branch", branch, str(self.remote), str(folder))
        return folder

    def run(self, script: str, folder: Path, variables: Mapping[str, str]) -> None:
        """A step, in the shell that GitHub and GitLab use."""
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env={**self.variables(), **variables},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"

    def job(self, job: Mapping[str, Any], folder: Path) -> list[str]:
        """All steps of a job of GitHub's that run something; returns what else it uses."""
        uses = []
        for step in job["steps"]:
            if "run" not in step:
                uses.append(step["uses"].partition("@")[0])
                for path in str(step.get("with", {}).get("path", "")).split():
                    if "upload" in step["uses"]:
                        assert list(folder.glob(path)), path
                continue
            if CONDITIONS[step.get("if")](folder):
                self.run(step["run"], folder, {name: _filled_in(text) for name, text in step.get("env", {}).items()})
        return uses


def _filled_in(text: str) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: GITHUB[found[1]], text)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """One user for all workflows."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        yield User(tmp_path_factory.mktemp("user"))


def _read(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text())
    return read


def test_a_pull_request_on_github(user: User) -> None:
    """It is measured against its base branch; its comment is made once and then updated; environments are kept."""
    job = _read("throughput.yml")["jobs"]["gate"]
    folder = user.checkout("pull", "pull")
    uses = user.job(job, folder)
    assert uses == ["actions/checkout", "actions/setup-python", "actions/cache", "actions/upload-artifact"]
    (comment,) = json.loads((user.folder / "comments.json").read_text())
    assert comment["body"].startswith("<!-- rlbench gate -->")
    assert "steps/s" in comment["body"]
    kept = sorted((user.folder / "cache" / "rlbench" / "gate").glob("*/ready"))
    assert len(kept) == 2
    (commenting,) = [step for step in job["steps"] if step.get("name") == "Comment on the pull request"]
    (folder / "gate.md").write_text("of a second push\n")
    user.job({"steps": [commenting]}, folder)
    (again,) = json.loads((user.folder / "comments.json").read_text())
    assert again == {"id": comment["id"], "body": "<!-- rlbench gate -->\nof a second push\n"}


def test_nights_on_github(user: User) -> None:
    """Each night adds a row to the history on its branch, and makes the page."""
    job = _read("throughput.yml")["jobs"]["history"]
    for night in (1, 2):
        folder = user.checkout("main", f"night-{night}")
        if night == 2:
            commit(folder, "main", 101.0)
        user.job(job, folder)
        kept = git(user.remote, "show", "rlbench-history:rlbench-history.jsonl")
        assert len({json.loads(line)["commit"] for line in kept.splitlines()}) == night
        assert "steps/s" in (folder / "site" / "index.html").read_text()


def test_a_merge_request_on_gitlab(user: User) -> None:
    """The same, by GitLab's file: the gate, and the page with the history."""
    read = _read("throughput.gitlab-ci.yml")
    folder = user.checkout("pull", "merge")
    asked = {"CI_PROJECT_DIR": str(folder), "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    for name, made in (("throughput", ("gate.json", "gate.xml", "gate.md")), ("pages", ("public/index.html",))):
        variables = {
            key: value.replace("$CI_PROJECT_DIR", str(folder)) for key, value in read[".rlbench"]["variables"].items()
        }
        user.run("\n".join((*read[".rlbench"]["before_script"], *read[name]["script"])), folder, asked | variables)
        for path in made:
            assert (folder / path).exists()
    assert (folder / "rlbench-history.jsonl").exists()
