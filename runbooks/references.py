"""Whole-value references: `$params.NAME` and `$steps.STEP.FIELD`.

Invariant: a reference is a whole string value and stands for a whole value; nothing is ever spliced into text.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from runbooks.predicates import lookup

_REFERENCE = re.compile(
    r"\$(?:params\.(?P<param>[a-z][a-z0-9_]*)|steps\.(?P<step>[a-z][a-z0-9-]*)\.(?P<field>[a-z0-9_.]+))"
)

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Reference:
    """A parsed reference: to a parameter (`param`), or to `field` of the output of `step`."""

    text: str
    param: str | None
    step: str | None
    field: str | None


class BadReference(ValueError):
    """A string that starts with or contains `$` in a way that is no whole-value reference."""


def parse_reference(value: Any) -> Reference | None:
    """The reference that `value` is, or None for a plain value. Raises BadReference."""
    if not isinstance(value, str) or "$" not in value:
        return None
    match = _REFERENCE.fullmatch(value)
    if match is None:
        raise BadReference(
            f"'{value}' is no reference; write $params.NAME or $steps.STEP.FIELD as the whole value, nothing around it"
        )
    return Reference(value, match["param"], match["step"], match["field"])


def strings(value: Any, at: Location = ()) -> Iterator[tuple[Location, str]]:
    """Every string inside `value`, with its place."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, (*at, index))


def resolve(value: Any, replace: Callable[[Reference], Any]) -> Any:
    """`value` with every reference replaced by what `replace` gives for it."""
    reference = parse_reference(value)
    if reference is not None:
        return replace(reference)
    if isinstance(value, Mapping):
        return {key: resolve(item, replace) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, replace) for item in value]
    return value


def from_run(params: Mapping[str, Any], outputs: Mapping[str, Mapping[str, Any]]) -> Callable[[Reference], Any]:
    """A replacer that reads parameters and the outputs of steps already run (absent ones give None)."""

    def replace(reference: Reference) -> Any:
        if reference.param is not None:
            return params.get(reference.param)
        return lookup(outputs.get(reference.step or "", {}), reference.field or "")

    return replace


def field_annotation(model: type[BaseModel], path: str) -> Any:
    """Type annotation of a dotted field path in a Pydantic model. Raises KeyError naming the missing part."""
    annotation: Any = model
    for part in path.split("."):
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)) or (
            part not in annotation.model_fields
        ):
            raise KeyError(part)
        annotation = _without_none(annotation.model_fields[part].annotation)
    return annotation


def compatible(source: Any, target: Any) -> bool:
    """Whether a value annotated `source` may be given where `target` is expected."""
    target, source = _without_none(target), _without_none(source)
    if target is Any or source is Any or source == target or (source is int and target is float):
        return True
    if _is_union(target):
        return any(compatible(source, member) for member in typing.get_args(target))
    return False


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _without_none(annotation: Any) -> Any:
    if not _is_union(annotation):
        return annotation
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation
