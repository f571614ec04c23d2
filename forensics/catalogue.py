"""The query library: published SQL files with YAML front matter.

Invariant: a query is known by what its file says; nothing about one stands in code. The front matter is a leading
block of comment lines between two `-- ---` lines.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C where there is one: front matters are read at every start."""
_FRONT = re.compile(r"\A-- ---\n(?P<front>(?:--.*\n)+?)-- ---\n")
_STEP = re.compile(r"^-- step: (?P<name>\w+)(?: \[(?P<repeat>each level|until stable)\])?$", re.MULTILINE)


KINDS = ("text", "integer", "number", "instant", "duration")
"""Types of parameters: `instant` as --from takes it, `duration` such as 30s, 5m or 1h30m."""
STATUSES = ("stable", "experimental")
ROWS = ("fact", "finding")


class QueryError(Exception):
    """A query file that does not say what it must; names the file and what to change."""


@dataclass(frozen=True)
class Step:
    """One statement of a query. `repeat`: '' once, 'each level' with $level descending, 'until stable'."""

    name: str
    repeat: str
    sql: str


@dataclass(frozen=True)
class Parameter:
    """What a query may be asked with. `kind` is one of KINDS; without a default it has to be given."""

    name: str
    kind: str
    default: object
    required: bool
    meaning: str


@dataclass(frozen=True)
class Column:
    """A column of a result: what it is, in which unit ('' where it has none), and whether a table shows it."""

    meaning: str
    unit: str = ""
    shown: bool = True


@dataclass(frozen=True)
class Query:
    """A query: its words, columns, parameters, and the whole text: front matter, parts, statements.

    `rows` says what a row of the result is: a 'finding' (there should be none) or a 'fact'. `judges`: it reads the verdicts.
    """

    name: str
    title: str
    question: str
    parameters: dict[str, Parameter]
    columns: dict[str, Column]
    since: str
    version: int
    status: str
    rows: str
    judges: bool
    text: str
    steps: tuple[Step, ...]

    @property
    def sql_sha256(self) -> str:
        """Of its statements without comments and with single blanks, so that a comment changes nothing."""
        bare = " ".join(re.sub(r"--[^\n]*", "", step.sql) for step in self.steps)
        return hashlib.sha256(" ".join(bare.split()).encode()).hexdigest()


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
        front = yaml.load("\n".join(lines), Loader=_LOADER)
    except yaml.YAMLError as error:
        raise QueryError(f"{stem}.sql: front matter is no YAML ({error}); correct it") from error
    missing = [key for key in ("title", "question", "since") if not isinstance(front, dict) or key not in front]
    if missing:
        raise QueryError(f"{stem}.sql: front matter lacks {', '.join(missing)}; add it")
    return dict(front)


def _query(stem: str, front: dict[str, object], bodies: dict[str, str]) -> Query:
    parts = front.get("parts", [])
    columns, parameters = front.get("columns"), front.get("parameters")
    if not isinstance(columns, dict) or not isinstance(parameters, dict) or not isinstance(parts, list):
        raise QueryError(f"{stem}.sql: front matter needs maps `columns` and `parameters`, and a list `parts` if any")
    unknown = [part for part in parts if part not in bodies]
    if unknown:
        raise QueryError(f"{stem}.sql: no file for part {', '.join(map(str, unknown))}; correct `parts`")
    head = _FRONT.match(bodies[stem])
    at = head.end() if head else 0
    own = bodies[stem][at:]
    text = "\n".join([bodies[stem][:at], *(bodies[part] for part in parts), own])
    last = _steps(own) or (Step(stem, "", own.strip()),)
    return Query(
        name=stem.replace("_", "-"), title=str(front["title"]), question=str(front["question"]),
        parameters={name: _parameter(stem, name, given) for name, given in parameters.items()},
        columns={name: _column(stem, name, given) for name, given in columns.items()},
        since=str(front["since"]), version=_number(stem, front.get("version", 1)),
        status=_word(stem, "status", front.get("status", "stable"), STATUSES),
        rows=_word(stem, "rows", front.get("rows", "fact"), ROWS), judges=bool(front.get("judges", False)),
        text=text, steps=(*(step for part in parts for step in _steps(bodies[part])), *last),
    )  # fmt: skip


def _parameter(stem: str, name: str, given: object) -> Parameter:
    if not isinstance(given, Mapping) or not {"type", "is"} <= set(given) <= {"type", "is", "default"}:
        raise QueryError(f"{stem}.sql: parameter {name} needs `type`, `is` and perhaps `default`")
    kind = _word(stem, f"type of {name}", given["type"], KINDS)
    return Parameter(name, kind, given.get("default"), "default" not in given, str(given["is"]))


def _column(stem: str, name: str, given: object) -> Column:
    if isinstance(given, Mapping):
        if not {"is"} <= set(given) <= {"is", "unit", "shown"}:
            raise QueryError(f"{stem}.sql: column {name} needs `is`, and perhaps `unit` and `shown`")
        return Column(str(given["is"]), str(given.get("unit", "")), bool(given.get("shown", True)))
    return Column(str(given))


def _word(stem: str, what: str, given: object, known: tuple[str, ...]) -> str:
    if given not in known:
        raise QueryError(f"{stem}.sql: {what} is {given!r}; it has to be one of {', '.join(known)}")
    return str(given)


def _number(stem: str, given: object) -> int:
    if not isinstance(given, int):
        raise QueryError(f"{stem}.sql: version is {given!r}; it has to be a whole number")
    return given


def _steps(text: str) -> tuple[Step, ...]:
    """The statements of one file behind its `-- step:` lines, each up to the next; a file of one statement has none."""
    marks = list(_STEP.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    return tuple(
        Step(mark["name"], mark["repeat"] or "", text[mark.end() : end].strip())
        for mark, end in zip(marks, ends, strict=True)
    )
