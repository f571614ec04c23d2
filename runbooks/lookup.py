"""The runbooks that ship with the package.

Invariant: a runbook is found by its id, and only one that lints without errors is handed out.
"""

from __future__ import annotations

from datetime import date
from importlib import resources
from pathlib import Path

from runbooks.errors import UsageError
from runbooks.lint import lint_files
from runbooks.model import Runbook

LIBRARY = Path(str(resources.files("runbooks.library")))


def library_files(directory: Path = LIBRARY) -> list[Path]:
    """Every runbook file of the library, by name."""
    return sorted(directory.glob("RB-*.md"))


def find_runbook(name: str, today: date, directory: Path = LIBRARY) -> Runbook:
    """The runbook with id `name`, or in the file `name`. Raises UsageError where there is none or it has errors."""
    as_file = Path(name)
    paths = [as_file] if as_file.suffix == ".md" else library_files(directory)
    runbooks, problems = lint_files(paths, today)
    for runbook in runbooks:
        if runbook.head.id == name or runbook.path == as_file:
            errors = [problem for problem in problems if problem.severity == "error" and problem.path == runbook.path]
            if errors:
                raise UsageError("\n".join(["the runbook has errors; mend them first:", *map(str, errors)]))
            return runbook
    if as_file.suffix == ".md" or any(path.name.startswith(f"{name}-") for path in paths):
        raise UsageError("\n".join([f"{name} cannot be used:", *map(str, problems)]))
    known = ", ".join(runbook.head.id for runbook in runbooks)
    raise UsageError(f"there is no runbook '{name}'; known: {known or 'none'}")
