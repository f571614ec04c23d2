"""The query library: published SQL files with YAML front matter.

Invariant: a query is known by what its file says; nothing about one stands in code. The front matter is a leading
block of comment lines between two `-- ---` lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

_FRONT = re.compile(r"\A-- ---\n(?P<front>(?:--.*\n)+?)-- ---\n")
_STEP = re.compile(r"^-- step: (?P<name>\w+)(?: \[(?P<repeat>each level|until stable)\])?$", re.MULTILINE)


class QueryError(Exception):
    """A query file that does not say what it must; names the file and what to change."""


@dataclass(frozen=True)
class Step:
    """One statement of a query. `repeat`: '' once, 'each level' with $level descending, 'until stable'."""

    name: str
    repeat: str
    sql: str


@dataclass(frozen=True)
class Query:
    """A query: its words, columns (name: meaning), parameters, and the whole text: front matter, parts, statements."""

    name: str
    title: str
    question: str
    parameters: dict[str, str]
    columns: dict[str, str]
    since: str
    text: str
    steps: tuple[Step, ...]


def load_queries() -> tuple[Query, ...]:
    """Every query of the library, by name. Raises QueryError."""
    return _library(_texts())


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    folder = files("forensics.queries")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((name.removesuffix(".sql"), (folder / name).read_text(encoding="utf-8")) for name in names)


@cache
def _library(texts: tuple[tuple[str, str], ...]) -> tuple[Query, ...]:
    bodies = dict(texts)
    fronts = {stem: _front(stem, text) for stem, text in texts}
    return tuple(_query(stem, fronts[stem], bodies) for stem in bodies if "part_of" not in fronts[stem])


def _front(stem: str, text: str) -> dict[str, object]:
    match = _FRONT.match(text)
    if match is None:
        raise QueryError(
            f"{stem}.sql: no front matter; begin the file with a block of comments between two '-- ---' lines"
        )
    lines = [line[2:].removeprefix(" ") for line in match["front"].splitlines()]
    try:
        front = yaml.safe_load("\n".join(lines))
    except yaml.YAMLError as error:
        raise QueryError(f"{stem}.sql: front matter is no YAML ({error}); correct it") from error
    missing = [key for key in ("title", "question", "since") if not isinstance(front, dict) or key not in front]
    if missing:
        raise QueryError(f"{stem}.sql: front matter lacks {', '.join(missing)}; add it")
    return dict(front)


def _query(stem: str, front: dict[str, object], bodies: dict[str, str]) -> Query:
    name = stem.replace("_", "-")
    parts = front.get("parts", [])
    columns, parameters = front.get("columns"), front.get("parameters")
    if not isinstance(columns, dict) or not isinstance(parameters, dict) or not isinstance(parts, list):
        raise QueryError(f"{stem}.sql: front matter needs maps `columns` and `parameters`, and a list `parts` if any")
    unknown = [part for part in parts if part not in bodies]
    if unknown:
        raise QueryError(f"{stem}.sql: no file for part {', '.join(map(str, unknown))}; correct `parts`")
    head = _FRONT.match(bodies[stem])
    at = head.end() if head else 0
    text = "\n".join([bodies[stem][:at], *(bodies[part] for part in parts), bodies[stem][at:]])
    return Query(
        name, str(front["title"]), str(front["question"]), parameters, columns, str(front["since"]), text, _steps(text)
    )


def _steps(text: str) -> tuple[Step, ...]:
    """The statements behind `-- step:` lines; a query of one statement has none.

    A step ends where the next, or the next part's front matter, begins.
    """
    marks = list(_STEP.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    steps = []
    for mark, end in zip(marks, ends, strict=True):
        sql = text[mark.end() : end].split("\n-- ---\n", 1)[0].strip()
        steps.append(Step(mark["name"], mark["repeat"] or "", sql))
    return tuple(steps)
