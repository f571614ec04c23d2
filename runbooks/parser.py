"""From a Markdown file to a `Runbook`, or to the list of what is wrong with it.

Invariant: parsing never stops at the first fault, and every fault carries its line in the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin
from pydantic import BaseModel, ValidationError

from runbooks.model import FrontMatter, LocatedStep, Runbook, Step
from runbooks.yaml_source import YamlDocument, YamlProblem, load_yaml

FENCE_INFO = "yaml step"
MAX_BYTES = 1 << 20

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class LintProblem:
    """One fault of a runbook file. `severity` is 'error' or 'warning'; `line` counts from 1."""

    path: Path
    line: int
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.message}"


@dataclass(frozen=True)
class Parsed:
    """Outcome of parsing: the runbook if its shape is right, and every fault found on the way."""

    runbook: Runbook | None
    problems: list[LintProblem]


def parse_runbook(path: Path) -> Parsed:
    """Read and parse the file at `path`."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Parsed(None, [LintProblem(path, 1, "error", f"cannot be read: {error}")])
    if len(content) > MAX_BYTES:
        return Parsed(None, [LintProblem(path, 1, "error", f"is larger than {MAX_BYTES} bytes")])
    return _Parser(path, content, text).parse()


class _Parser:
    """One pass over the Markdown tokens of one file."""

    def __init__(self, path: Path, content: bytes, text: str) -> None:
        self._path = path
        self._digest = hashlib.sha256(content).hexdigest()
        self._text_lines = text.splitlines()
        self._tokens = MarkdownIt("commonmark").use(front_matter_plugin).parse(text)
        self._problems: list[LintProblem] = []

    def parse(self) -> Parsed:
        head = self._front_matter()
        steps: list[LocatedStep] = []
        sections: dict[str, str] = {}
        for heading, start, end in self._headings():
            fences = [token for token in self._tokens if _inside(token, start, end) and _is_step(token)]
            if not fences:
                sections[heading] = self._prose(start + 1, end)
                continue
            for extra in fences[1:]:
                self._error(_line(extra), "is a second step under one heading; give each step its own heading")
            located = self._step(heading, start, end, fences[0])
            if located is not None:
                steps.append(located)
        self._stray_fences()
        if head is None or any(problem.severity == "error" for problem in self._problems):
            return Parsed(None, self._problems)
        front, lines = head
        runbook = Runbook(
            path=self._path, digest=self._digest, head=front, head_lines=lines, sections=sections, steps=steps
        )
        return Parsed(runbook, self._problems)

    def _error(self, line: int, message: str) -> None:
        self._problems.append(LintProblem(self._path, line, "error", message))

    def _front_matter(self) -> tuple[FrontMatter, dict[tuple[str | int, ...], int]] | None:
        token = next((token for token in self._tokens if token.type == "front_matter"), None)
        if token is None:
            self._error(1, "has no front matter; start the file with --- and the keys schema, id, version ...")
            return None
        document = self._yaml(token.content, 2, "front matter")
        if document is None:
            return None
        head = self._validate(FrontMatter, document, "front matter")
        return None if head is None else (head, document.lines)

    def _headings(self) -> list[tuple[str, int, int]]:
        """(title, first line, line after the last) of every section, lines counted from 0."""
        found = [
            (self._tokens[index + 1].content, token.map[0])
            for index, token in enumerate(self._tokens)
            if token.type == "heading_open" and token.map
        ]
        ends = [start for _, start in found[1:]] + [len(self._text_lines)]
        return [(title, start, end) for (title, start), end in zip(found, ends, strict=True)]

    def _step(self, heading: str, start: int, end: int, token: Token) -> LocatedStep | None:
        first = (token.map or [start, end])[0]
        document = self._yaml(token.content, first + 2, f"step '{heading}'")
        if document is None:
            return None
        step = self._validate(Step, document, f"step '{heading}'")
        if step is None:
            return None
        prose = self._prose(start + 1, first)
        return LocatedStep(step=step, heading=heading, prose=prose, line=first + 1, lines=document.lines)

    def _prose(self, start: int, end: int) -> str:
        return "\n".join(self._text_lines[start:end]).strip()

    def _stray_fences(self) -> None:
        starts = [start for _, start, _ in self._headings()]
        for token in self._tokens:
            if token.type != "fence" or token.map is None:
                continue
            if _is_step(token) and (not starts or token.map[0] < starts[0]):
                self._error(_line(token), "is a step with no heading above it")
            elif not _is_step(token) and token.info.split()[:1] in (["yaml"], ["yml"], ["step"]):
                self._error(_line(token), f"is a '{token.info.strip()}' fence; a step fence is '```{FENCE_INFO}'")

    def _yaml(self, text: str, first_line: int, what: str) -> YamlDocument | None:
        try:
            document = load_yaml(text, first_line)
        except YamlProblem as problem:
            self._error(problem.line, f"{what} {problem.message}")
            return None
        if not isinstance(document.data, dict):
            self._error(first_line, f"{what} is no mapping of keys")
            return None
        return document

    def _validate(self, model: type[ModelT], document: YamlDocument, what: str) -> ModelT | None:
        try:
            return model.model_validate(document.data)
        except ValidationError as error:
            for fault in error.errors():
                place = tuple(part for part in fault["loc"] if isinstance(part, (str, int)))
                self._error(document.line_of(place), f"{what}: {_explain(place, fault)}")
            return None


def _explain(place: tuple[str | int, ...], fault: Any) -> str:
    name = ".".join(str(part) for part in place)
    if fault["type"] == "extra_forbidden":
        return f"unknown key '{name}'"
    if fault["type"] == "missing":
        return f"'{name}' is missing"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"'{name}' {message}" if name else message


def _line(token: Token) -> int:
    return (token.map or [0, 0])[0] + 1


def _inside(token: Token, start: int, end: int) -> bool:
    return token.map is not None and start <= token.map[0] < end


def _is_step(token: Token) -> bool:
    return token.type == "fence" and token.info.split() == FENCE_INFO.split()
