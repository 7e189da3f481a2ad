from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layout import OURS, files_of

RUN_CODE = frozenset(
    {
        *(f"{module}.{name}" for module in ("pickle", "cPickle", "dill", "cloudpickle") for name in ("load", "loads")),
        *("pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "joblib.load"),
        *("pandas.read_pickle", "pd.read_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load"),
        *("eval", "exec", "compile", "__import__", "runpy.run_path", "torch.jit.load", "torch.package.PackageImporter"),
    }
)
"""What runs code that stands in data, or may."""


def found(source: str) -> Iterator[tuple[int, str]]:
    """Where a program reads data in a way that may run code of it, and what it calls."""
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    } | {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, dot, rest = ast.unparse(node.func).partition(".")
        called = f"{names.get(first, first)}{dot}{rest}"
        keywords = {each.arg: ast.unparse(each.value) for each in node.keywords}
        if (
            called in RUN_CODE
            or (called == "torch.load" and keywords.get("weights_only") != "True")
            or (called in {"numpy.load", "np.load"} and keywords.get("allow_pickle", "False") != "False")
        ):
            yield node.lineno, called


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.load(file)",
        "import pickle as p\np.loads(data)",
        "from pickle import loads as read\nread(data)",
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(path)",
        "import yaml\nyaml.load(text)",
        "import marshal\nmarshal.loads(data)",
        "import shelve\nshelve.open(path)",
        "eval(text)",
        "exec(text)",
    ],
)
def test_what_runs_code_is_seen(source: str) -> None:
    """However it was imported."""
    assert list(found(source))


@pytest.mark.parametrize(
    "source", ["import torch\ntorch.load(path, weights_only=True)", "import numpy as np\nnp.load(path)", "model.eval()"]
)
def test_what_runs_none_is_let_through(source: str) -> None:
    """Weights and arrays are read as numbers."""
    assert not list(found(source))


def test_nothing_that_is_read_is_run() -> None:
    """No package of the product unpickles, evaluates or executes anything."""
    root = Path(__file__).resolve().parents[1]
    files = [
        path
        for package in (*OURS, "rlbench", "rlbench_start", "rlbench_pytest", "rlbench_client")
        for path in files_of(package)
    ]
    assert len(files) > 150
    seen = {
        f"{name}:{line}: {called}"
        for path in files
        if (name := str(path.relative_to(root)))
        for line, called in found(path.read_text(encoding="utf-8"))
    }
    assert seen == set()
