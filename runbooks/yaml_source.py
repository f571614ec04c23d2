"""Strict YAML with a line number for every value.

Invariant: what this module returns is plain data (dict, list, str, int, float, bool, date, None) built by the
safe loader, with no duplicate keys, no aliases, at most `MAX_DEPTH` levels, and only `true` / `false` as booleans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 12

Path = tuple[str | int, ...]


class YamlProblem(Exception):
    """One fault in a YAML text; `line` counts from 1 in the file that holds the text."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True)
class YamlDocument:
    """Parsed data and where each of its values stands (`lines[path]`, counting from 1 in the file)."""

    data: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Line of `path`, or of its nearest ancestor that stands in the text."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


class _StrictLoader(yaml.SafeLoader):
    """The safe loader without YAML 1.1's `yes`, `no`, `on` and `off`."""


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def load_yaml(text: str, first_line: int) -> YamlDocument:
    """Parse `text`, whose first line is line `first_line` of its file. Raises YamlProblem."""
    loader = _StrictLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise YamlProblem(first_line, "is empty; write the keys")
        lines: dict[Path, int] = {}
        _walk(node, (), first_line, lines, set())
        return YamlDocument(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        raise YamlProblem(line, f"is not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlProblem(first_line, f"is not valid YAML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise YamlProblem(first_line, f"holds a value that cannot be read: {error}") from error
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path, first_line: int, lines: dict[Path, int], seen: set[int]) -> None:
    line = first_line + node.start_mark.line
    lines.setdefault(path, line)
    if len(path) > MAX_DEPTH:
        raise YamlProblem(line, f"is nested deeper than {MAX_DEPTH} levels")
    if id(node) in seen:
        raise YamlProblem(line, "uses a YAML alias; write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), first_line, lines, seen)
        return
    keys: set[str] = set()
    for key_node, value_node in node.value:
        key_line = first_line + key_node.start_mark.line
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlProblem(key_line, "has a key that is no plain word")
        if key_node.value in keys:
            raise YamlProblem(key_line, f"has the key '{key_node.value}' twice")
        keys.add(key_node.value)
        lines[(*path, key_node.value)] = key_line
        _walk(value_node, (*path, key_node.value), first_line, lines, seen)
