from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("harness", "systems", "scenarios", "results", "reports")
PRODUCT = (*OURS, "rlbench", "rlbench_start", "rlbench_client", "rlbench_pytest")
MOST_LINES = 400
MOST_FILES = 15
DOTTED = re.compile(r"[a-z_]+(\.[a-z_]+)+")
NAMED = {
    "harness/launch/nodes/agent.py": {"harness/run"},
    "harness/run/zygote.py": {"systems", *(f"systems/engine/{name}" for name in ("averaging", "rollouts", "workers"))},
    "systems/engine/workers/pool.py": {"harness/plan"},
}
"""Files that name modules of folders that theirs may not import: the keeper that an agent starts, what ranks will need,
and what fork servers import first."""
TEXTS = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml"}


def files_of(package: str) -> list[Path]:
    """The Python files of a package."""
    return sorted((ROOT / package).rglob("*.py"))


def all_texts() -> list[Path]:
    """The files of the repository that people read, without what tools and runs leave beside them."""
    inside = (path for folder in (*PRODUCT, "benchmarks", "tests", "docs") for path in (ROOT / folder).rglob("*"))
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
            folder = file_of(module)
            inner = {
                alias.name
                for alias in node.names
                if (folder / f"{alias.name}.py").exists() or (folder / alias.name / "__init__.py").exists()
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


def folder_of(module: str) -> str:
    """The folder of a module, or of what a package says by itself."""
    path = file_of(module)
    return str((path if path.is_dir() else path.parent).relative_to(ROOT))


def module_of(path: Path) -> str:
    """The name by which a file is imported: those of the five folders, below `rlbench`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("rlbench", *parts) if parts[0] in OURS else parts).removesuffix(".__init__")


def file_of(module: str) -> Path:
    """The file of a module without its suffix, or the folder of a package: not by way of the links in `rlbench/`."""
    top, _, inner = module.partition(".")
    return ROOT / (inner if top == "rlbench" and inner.partition(".")[0] in OURS else module).replace(".", "/")


def allowed_arrows() -> dict[str, set[str]]:
    """What each folder may import, as the table in CONTRIBUTING.md says; `<…>` stands for each folder of its kind."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([^`]+)` \| .+ \| (.+) \|$", text.partition("## Rooms and arrows")[2].partition("\n## ")[0], re.MULTILINE
    )
    return {folder: set(re.findall(r"`([^`]+)`", may)) for folder, may in rows}


def row_of(folder: str, rows: Collection[str]) -> str:
    """The row that is about a folder."""
    if folder in rows:
        return folder
    return f"{folder.rpartition('/')[0]}/<{'library' if folder.startswith('systems/external') else 'name'}>"


def imports_of_ours() -> dict[str, set[str]]:
    """What each module of the product imports of the product, type-only imports included."""
    found = {}
    for path in (path for package in PRODUCT for path in files_of(package)):
        module = module_of(path)
        found[module] = {name for name in imports(path) if name.partition(".")[0] in PRODUCT} - {module}
    return found


def named_by(path: Path) -> Iterator[str]:
    """The modules of the product that a file names in a text, for another process to import."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and DOTTED.fullmatch(text) and file_of(text).with_suffix(".py").exists():
            yield text


def test_folders_import_what_the_table_allows() -> None:
    """Every arrow between folders is in CONTRIBUTING's table, and every one in the table is taken."""
    allowed = allowed_arrows()
    taken: dict[str, set[str]] = {row: set() for row in allowed}
    for module, others in imports_of_ours().items():
        folder = folder_of(module)
        between = {folder_of(other) for other in others} - {folder}
        if between:
            taken[row_of(folder, allowed)] |= between
    assert taken == allowed


def test_few_modules_are_named() -> None:
    """An arrow that goes by a text is one of these."""
    allowed = allowed_arrows()
    found: dict[str, set[str]] = {}
    for path in (path for package in PRODUCT for path in files_of(package)):
        folder = folder_of(module_of(path))
        others = {folder_of(name) for name in named_by(path)} - {folder}
        if others and (more := others - allowed[row_of(folder, allowed)]):
            found[str(path.relative_to(ROOT))] = more
    assert found == NAMED


def test_modules_are_named_below_rlbench() -> None:
    """An installed rlbench has no top-level `reports`, and a user's project may: no text that is imported begins so."""
    own = re.compile(rf"import_module\(\s*f?[\"'](?:{'|'.join(OURS)})[.\"']")
    files = [path for package in PRODUCT for path in files_of(package)]
    assert [str(path.relative_to(ROOT)) for path in files if own.search(path.read_text(encoding="utf-8"))] == []


def test_no_imports_go_in_a_circle() -> None:
    """Neither those of files nor those of folders, type-only imports included."""
    of_files = imports_of_ours()
    of_folders: dict[str, set[str]] = defaultdict(set)
    for module, others in of_files.items():
        of_folders[folder_of(module)] |= {folder_of(other) for other in others} - {folder_of(module)}
    for graph in (of_files, of_folders):
        assert len(tuple(TopologicalSorter(graph).static_order())) >= len(graph)  # raises CycleError


def test_folders_are_small() -> None:
    """No folder of Python files has more than 15 files."""
    folders = {path.parent for package in (*PRODUCT, "tests", "benchmarks") for path in files_of(package)}
    counts = {folder: sum(path.is_file() for path in folder.iterdir()) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_what_starts_us_looks_before_it_imports() -> None:
    """Nothing of ours, which somebody's package may hide, is imported by `rlbench` before it has looked for such.

    Every process of ours imports it, so nothing else is either, but the standard library.
    """
    for path in [*(ROOT / "rlbench").glob("*.py"), *files_of("rlbench_start")]:
        allowed = sys.stdlib_module_names | {"rlbench_start"}
        assert {module.partition(".")[0] for module in imports(path, at_module_level=True)} <= allowed, path
    assert {path.name for path in (ROOT / "rlbench").iterdir() if path.is_symlink()} == set(OURS)


def test_the_harness_imports_no_torch() -> None:
    """No module of the harness loads torch when it is imported: every command would pay for it."""
    for path in files_of("harness"):
        assert "torch" not in {module.partition(".")[0] for module in imports(path, at_module_level=True)}, path


def test_environment_workers_import_no_torch() -> None:
    """Nothing that a worker loads, of the engine or of any scenario, imports torch, not even inside a function."""
    engine = [
        ROOT / "systems" / "engine" / f"{name}.py" for name in ("workers/worker", "workers/tables", "wire/commands")
    ]
    for path in [*files_of("scenarios"), *files_of("systems/choices"), *engine]:
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


def test_no_merge_is_half_done() -> None:
    """No file holds what git leaves where two changes met."""
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path for path in all_texts() if marks.search(path.read_text(encoding="utf-8"))] == []
