"""Two results of one query compared: what came, what went, and whether they can be compared at all.

Invariant: rows are compared whole; nothing is matched by likeness.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS = "rows"
ASIDE = frozenset({ROWS, "asked_at"})
"""What two results of the same evidence may differ in."""


class NoResult(ValueError):
    """A file that is no result in JSON; says why."""


@dataclass(frozen=True)
class Difference:
    """`only_first`, `only_second`: rows; `envelope`: fields whose values differ, as (first, second)."""

    only_first: list[dict[str, Any]]
    only_second: list[dict[str, Any]]
    envelope: dict[str, tuple[Any, Any]]


def read_result(path: Path) -> dict[str, Any]:
    """A result as `--format json` wrote it. Raises NoResult."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoResult(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise NoResult(f"{path}: is no JSON ({error}); write results with --format json -o FILE") from error
    if not isinstance(content, dict) or not isinstance(content.get(ROWS), list) or "query" not in content:
        raise NoResult(f"{path}: is no result of a query; write one with --format json -o FILE")
    return content


def diff(first: dict[str, Any], second: dict[str, Any]) -> Difference:
    """What differs between two results. Raises NoResult where they are of different queries."""
    if first["query"] != second["query"]:
        raise NoResult(f"these are results of {first['query']} and of {second['query']}; compare two of one query")
    names = sorted((set(first) | set(second)) - ASIDE)
    envelope = {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}
    return Difference(_less(first[ROWS], second[ROWS]), _less(second[ROWS], first[ROWS]), envelope)


def _less(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that are not among the others, each as often as it is too many."""
    left = Counter(_key(row) for row in others)
    found = []
    for row in rows:
        if left[_key(row)]:
            left[_key(row)] -= 1
        else:
            found.append(row)
    return found


def _key(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)
