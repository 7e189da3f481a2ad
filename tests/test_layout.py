from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlbench_start

ROOT = Path(__file__).resolve().parents[1]
OURS = ("harness", "systems", "scenarios", "results", "reports")
OF_HARNESS_FOR_ALL = {
    f"harness.{name}"
    for name in [
        "contract",
        "settings",
        "budget",
        "meter",
        "meter_file",
        "counted",
        "devices",
        "emulated_gpu",
        "booking",
        "network",
        "prediction",
        "process",
        "raised",
        "remarks",
        "told",
        "forked",
    ]
}
"""What systems and scenarios may know of the harness."""
MOST_LINES = 400
TEXTS = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml"}


def files_of(package: str) -> list[Path]:
    """The Python files of a package."""
    return sorted((ROOT / package).rglob("*.py"))


def all_texts() -> list[Path]:
    """The files of the repository that people read, without what tools and runs leave beside them."""
    inside = (
        path
        for folder in (*OURS, "rlbench", "rlbench_start", "rlbench_client", "benchmarks", "tests", "docs")
        for path in (ROOT / folder).rglob("*")
    )
    return sorted(path for path in [*ROOT.iterdir(), *inside] if path.is_file() and path.suffix in TEXTS)


def imports(path: Path, *, at_module_level: bool = False) -> Iterator[str]:
    """The modules that a file imports, as they are written; those under `TYPE_CHECKING` do not count for the latter."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = _module_level(tree) if at_module_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            inner = {
                alias.name for alias in node.names if (ROOT / module.replace(".", "/") / f"{alias.name}.py").exists()
            }
            yield from ({f"{module}.{name}" for name in inner} or {module})


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything that runs when a module is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def packages_of(path: Path) -> set[str]:
    """The packages of ours that a file imports from."""
    return {module.partition(".")[0] for module in imports(path)} & set(OURS)


def test_the_harness_knows_no_system_and_no_scenario() -> None:
    """The harness finds systems and scenarios by name alone."""
    assert {path: packages_of(path) & {"systems", "scenarios"} for path in files_of("harness")} == {
        path: set() for path in files_of("harness")
    }


@pytest.mark.parametrize("package", ["systems", "scenarios"])
def test_systems_and_scenarios_know_the_contract_alone(package: str) -> None:
    """They import of the harness only what the contract is made of, and nothing of each other, results or reports."""
    for path in files_of(package):
        assert packages_of(path) <= {package, "harness"}, path
        of_harness = {module for module in imports(path) if module.partition(".")[0] == "harness"}
        assert of_harness <= OF_HARNESS_FOR_ALL, path


def test_what_the_contract_is_made_of_knows_nothing_else() -> None:
    """What systems and scenarios see of the harness does not lead to the rest of it, nor to results.

    But for one module, by which hostile text is made visible everywhere alike.
    """
    seen_by_devices = {"harness.telemetry", "harness.telemetry.nvml"}  # which GPUs are there
    for module in OF_HARNESS_FOR_ALL:
        path = ROOT / f"{module.replace('.', '/')}.py"
        ours = {name for name in imports(path) if name.partition(".")[0] in OURS}
        allowed = (
            OF_HARNESS_FOR_ALL | {"results.untrusted"} | (seen_by_devices if module == "harness.devices" else set())
        )
        assert ours <= allowed, path


def test_what_starts_us_looks_before_it_imports() -> None:
    """Nothing of ours, which somebody's package may hide, is imported by `rlbench` before it has looked for such."""
    for path in [*files_of("rlbench"), *files_of("rlbench_start")]:
        allowed = sys.stdlib_module_names | {"rlbench_start"}
        assert {module.partition(".")[0] for module in imports(path, at_module_level=True)} <= allowed, path
    assert set(OURS) == set(rlbench_start.OURS)


def test_results_know_nothing_of_ours_and_reports_only_results() -> None:
    """Records can be read, compared and printed without anything that makes them."""
    for path in files_of("results"):
        assert packages_of(path) <= {"results"}, path
    for path in files_of("reports"):
        assert packages_of(path) <= {"reports", "results"}, path


def test_the_harness_imports_no_torch() -> None:
    """No module of the harness loads torch when it is imported: every command would pay for it."""
    for path in files_of("harness"):
        assert "torch" not in {module.partition(".")[0] for module in imports(path, at_module_level=True)}, path


def test_environment_workers_import_no_torch() -> None:
    """Nothing that a worker loads, of the engine or of any scenario, imports torch, not even inside a function."""
    engine = [ROOT / "systems" / "engine" / f"{name}.py" for name in ("worker", "tables")]
    for path in [*files_of("scenarios"), *engine]:
        assert "torch" not in {module.partition(".")[0] for module in imports(path)}, path


def test_files_hold_one_idea() -> None:
    """No Python file is longer than 400 lines, and there is none for odds and ends."""
    files = [path for path in all_texts() if path.suffix == ".py"]
    assert len(files) > 100
    assert {path: count for path in files if (count := len(path.read_text().splitlines())) > MOST_LINES} == {}
    assert [path for path in files if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


def test_nothing_outside_the_repository_is_named() -> None:
    """Files and links stay inside the repository: a clone needs nothing beside itself."""
    for path in all_texts():
        text = path.read_text(encoding="utf-8")
        assert not re.search(rf"(?<![\w.-]){re.escape(str(ROOT))}(?![\w.-])", text), path
        for match in re.finditer(r"(?<![\w./])(?:\.\./)+[\w./-]*", text):
            target = (path.parent / match[0]).resolve()
            assert target.is_relative_to(ROOT), f"{path}: {match[0]}"


def test_links_of_documents_lead_somewhere() -> None:
    """A relative link in a document names a file that is there."""
    for path in (path for path in all_texts() if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"
