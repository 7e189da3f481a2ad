"""One change to the product."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Replaces a text that occurs exactly once in a file, so that it is wrong."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    """What is wrong then."""
    tests: tuple[str, ...] = ()
    """What is about it, where the names of files do not say."""

    def occurrences(self, root: Path = ROOT) -> int:
        """How often the old text stands in the file; 1, or the change is out of date."""
        return (root / self.file).read_text(encoding="utf-8").count(self.old)

    def apply(self, root: Path) -> None:
        """Makes the change in a copy of the repository."""
        assert self.occurrences(root) == 1, f"{self.name}: {self.old!r} must stand exactly once in {self.file}"
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")

    def own_tests(self, root: Path) -> list[str]:
        """Files of tests that are named like the changed one, or are said to be about it."""
        if self.tests:
            return list(self.tests)
        path = Path(self.file)
        folder, stem = root / "tests" / path.parent, path.stem if path.stem != "__init__" else path.parent.name
        found = folder.glob(f"test_{stem}*.py")
        return sorted(str(each.relative_to(root)) for each in found)

    def folder_of_tests(self, root: Path) -> str | None:
        """The folder of tests that mirrors the package, if there is one."""
        folder = root / "tests" / Path(self.file).parent
        while not any(folder.rglob("test_*.py")):
            folder = folder.parent
        return None if folder == root / "tests" else str(folder.relative_to(root))
