from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import rlbench_client
from rlbench.harness.metering import meter_file
from rlbench_client import counters
from tests.test_layout import imports

FOLDER = Path(rlbench_client.__file__).parent
WITH_GYMNASIUM = {"ids.py": {"gymnasium"}, "plain.py": {"gymnasium", "numpy"}}


def test_it_installs_alone(tmp_path: Path) -> None:
    """Pip makes a package of the folder alone, which counts without rlbench or gymnasium beside it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, *offline, str(FOLDER)], check=True, capture_output=True, text=True)
    names = {path.name for path in (tmp_path / "site" / "rlbench_client").iterdir()} - {"__pycache__"}
    assert names == {path.name for path in FOLDER.glob("*.py")} | {"py.typed"}
    code = f"import sys; sys.path[:0] = [{str(tmp_path / 'site')!r}]; import rlbench_client as c; print(c.__file__)"
    environment = {counters.FOLDER_VARIABLE: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", f"{code}; c.learned(3)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert len(list(tmp_path.glob(f"*{counters.SUFFIX}"))) == 1


def test_it_needs_nothing_when_it_is_imported() -> None:
    """Its modules import the standard library and each other; only those for gymnasium's users import it."""
    for path in FOLDER.glob("*.py"):
        modules = {module.partition(".")[0] for module in imports(path, at_module_level=True)}
        others = modules - sys.stdlib_module_names - {"rlbench_client"}
        assert others == WITH_GYMNASIUM.get(path.name, set()), path


def test_it_is_written_for_older_pythons() -> None:
    """Its syntax is that of Python 3.9, the oldest that its pyproject.toml names."""
    for path in FOLDER.glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


def test_its_spans_are_those_of_the_meter() -> None:
    """What a trainer can time is what a run's record knows."""
    assert counters.SPANS == meter_file.SPANS
