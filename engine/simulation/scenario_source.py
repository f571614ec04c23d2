"""How a scenario is written: strict YAML with a line for every value, quantities with units, and faults told in full.

Invariant: data comes from the safe loader, with text keys, no key twice, no alias, at most `MAX_DEPTH` levels, only
`true` / `false` as booleans and no value that YAML 1.1 would turn into a date or a sexagesimal number. Every fault
names file, line and field, what was found there and what was expected, and all faults of a file are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

MAX_DEPTH = 16
MAX_SHOWN = 60
MAX_LISTED = 12
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FARTHEST = 1 << 53  # microseconds: 285 years
UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
UNIT_SIZE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
             "Ti": 1 << 40}  # fmt: skip
A_DURATION = "a duration such as 250us, 3ms, 2s, 5m, 1h, 13d or 1h30m"
A_SIZE = "a whole number such as 4096, 1_048_576, 200k or 1Mi"
A_TIME = "a time with its zone such as 2026-06-01T00:00:00Z"

Place = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)
SomeT = TypeVar("SomeT", bound=tuple[Any, ...])


@dataclass(frozen=True)
class ScenarioProblem:
    """One fault: `line` counts from 1, `field` is its path such as `fleet[0].pages.kv` (empty: the whole file)."""

    source: str
    line: int
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.source}:{self.line}: {field}found {self.found}; expected {self.expected}"


class ScenarioError(Exception):
    """What is wrong with a scenario: every fault found, in the order of its lines."""

    def __init__(self, problems: list[ScenarioProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.field))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Model(BaseModel):
    """A frozen part of a scenario that knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Misfit:
    """Two parts of a scenario that do not go together; `place` is where it is told."""

    place: Place
    found: str
    expected: str


def expected(what: str) -> PydanticCustomError:
    """The error of a validator that wanted `what`."""
    return PydanticCustomError("expected", "expected {what}", {"what": what})


def misfits(found: list[Misfit]) -> PydanticCustomError:
    """The error of a validator that compared several fields; places count from the model it validates."""
    words = "; ".join(f"{field_path(one.place)}: found {one.found}, expected {one.expected}" for one in found)
    return PydanticCustomError("misfits", "{words}", {"words": words, "misfits": found})


def nearest(name: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown `name`: the one it resembles, or a few to choose from."""
    names = list(dict.fromkeys(known))
    near = get_close_matches(name, names, n=1)
    if near:
        return f"a known name such as '{near[0]}'"
    listed = ", ".join(names[:MAX_LISTED]) + (f" ({len(names)} in all)" if len(names) > MAX_LISTED else "")
    return f"one of {listed}" if names else "none"


def unknown(place: Place, name: object, known: Iterable[str]) -> Misfit:
    """A name that is none of `known`."""
    return Misfit(place, f"'{name}'", nearest(str(name), known))


def repeated(section: str, items: Sequence[Any], key: str = "name", names: Sequence[str] | None = None) -> list[Misfit]:
    """What has the same name as an item of `section` before it; `names` where it is not each item's `key`."""
    listed = names or [getattr(item, key) for item in items]
    numbers = {name: number for number, name in reversed(list(enumerate(listed)))}
    return [
        Misfit((section, number, key), f"'{name}'", "a name that no other one has")
        for number, name in enumerate(listed)
        if numbers[name] != number
    ]


# ---- quantities


_DURATION_PART = re.compile(r"(\d+)(?:\.(\d+))?(us|ms|s|m|h|d)")
_DURATION = re.compile(rf"-?(?:{_DURATION_PART.pattern})+")
_SIZE = re.compile(r"(0|[1-9][0-9_]*)(k|M|G|T|Ki|Mi|Gi|Ti)?")


def parse_micros(value: object) -> int:
    """Microseconds of `250us`, `1h30m`, `-2ms` or a bare 0. Raises PydanticCustomError where it is no whole number."""
    if value == 0 and isinstance(value, int) and not isinstance(value, bool):
        return 0
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise expected(A_DURATION)
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(value):
        scale = 10 ** len(fraction)
        micros, rest = divmod(int(whole + fraction) * UNIT_US[unit], scale)
        if rest:
            raise expected("a duration of whole microseconds")
        total += micros
    if total >= FARTHEST:
        raise expected("a duration below 285 years")
    return -total if value.startswith("-") else total


def parse_size(value: object) -> int:
    """A whole number, given as such or with a unit. Raises PydanticCustomError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise expected(A_SIZE)
    return int(match[1].replace("_", "")) * UNIT_SIZE[match[2] or ""]


def parse_utc(value: object) -> int:
    """Microseconds UTC of an ISO time with its zone. Raises PydanticCustomError."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise expected(A_TIME) from None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise expected(A_TIME)
    return (time - EPOCH) // timedelta(microseconds=1)


def write_micros(micros: int) -> str:
    """What `parse_micros` reads, with the largest units that fit: `1h30m`."""
    rest, words = abs(micros), "-" if micros < 0 else ""
    for unit, size in reversed(UNIT_US.items()):
        count, rest = divmod(rest, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def _some(values: SomeT) -> SomeT:
    if not values:
        raise expected("at least one entry")
    return values


def _write_utc(micros: int) -> str:
    return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


_written_micros = PlainSerializer(write_micros, return_type=str, when_used="json")
_written_utc = PlainSerializer(_write_utc, return_type=str, when_used="json")
SignedMicros = Annotated[int, BeforeValidator(parse_micros), _written_micros]
Micros = Annotated[int, BeforeValidator(parse_micros), Field(ge=0), _written_micros]
PositiveMicros = Annotated[int, BeforeValidator(parse_micros), Field(gt=0), _written_micros]
UtcMicros = Annotated[int, BeforeValidator(parse_utc), Field(ge=0, lt=FARTHEST), _written_utc]
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, lt=1 << 62)]
PositiveSize = Annotated[int, BeforeValidator(parse_size), Field(ge=1, lt=1 << 62)]
Share = Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Strict(), Field(ge=0, le=1e18, allow_inf_nan=False)]
PositiveRate = Annotated[float, Strict(), Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Ppm = Annotated[float, Strict(), Field(ge=-1e5, le=1e5, allow_inf_nan=False)]
Switch = Annotated[bool, Strict()]
NonEmpty = AfterValidator(_some)
Name = Annotated[str, Strict(), StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


# ---- from text to a model


def read_model(model: type[ModelT], text: str, source: str, context: object = None) -> ModelT:
    """`text`, the content of the file `source`, as a `model`. Raises ScenarioError with every fault found."""
    data, lines = _load(text, source)
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        problems = []
        for one in dict.fromkeys(_told(error, model, data)):
            line = next((lines[at] for n in range(len(one.place), -1, -1) if (at := one.place[:n]) in lines), 1)
            problems.append(_problem(source, line, one.found, one.expected, one.place))
        raise ScenarioError(problems) from None


class _StrictLoader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's idea of what is a number or a boolean."""


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _firsts in (
    ("null", "(?:null|)", ["n", ""]),
    ("bool", "(?:true|false)", ["t", "f"]),
    ("int", "[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf|\.nan)",
        list("-+.0123456789"),
    ),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), _firsts)


def _load(text: str, source: str) -> tuple[Any, dict[Place, int]]:
    """The data of a YAML text and the line of each of its values. Raises ScenarioError."""
    lines: dict[Place, int] = {}
    try:
        loader = _StrictLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _walk(node, (), source, lines, set())
        return (None if node is None else loader.construct_document(node)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        found = f"broken text ({error.problem or error.context})"
        raise ScenarioError([_problem(source, mark.line + 1 if mark else 1, found)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ScenarioError([_problem(source, 1, f"broken text ({' '.join(str(error).split())})")]) from None


def _problem(source: str, line: int, found: str, wanted: str = "plain YAML", place: Place = ()) -> ScenarioProblem:
    return ScenarioProblem(source, line, field_path(place), found, wanted)


def _walk(node: yaml.Node, place: Place, source: str, lines: dict[Place, int], seen: set[int]) -> None:
    line = node.start_mark.line + 1
    lines.setdefault(place, line)
    if len(place) > MAX_DEPTH:
        raise ScenarioError([_problem(source, line, "deeper nesting", f"at most {MAX_DEPTH} levels")])
    if id(node) in seen:
        raise ScenarioError([_problem(source, line, "a YAML alias", "the value written out", place)])
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*place, index), source, lines, seen)
    for key_node, value_node in node.value if isinstance(node, yaml.MappingNode) else ():
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ScenarioError([_problem(source, key_line, "a key that is no plain word", "a name", place)])
        key_node.tag = "tag:yaml.org,2002:str"
        at = (*place, key_node.value)
        if at in lines:
            raise ScenarioError([_problem(source, key_line, "this key twice", "it once", at)])
        lines[at] = key_line
        _walk(value_node, at, source, lines, seen)


def field_path(place: Place) -> str:
    """`('fleet', 0, 'count')` as `fleet[0].count`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def fit(model: type[BaseModel], data: Any) -> list[Misfit]:
    """What keeps `data` from being a `model`; places count from it."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return list(_told(error, model, data))
    return []


def _told(error: ValidationError, model: type[BaseModel], data: Any) -> Iterator[Misfit]:
    for fault in error.errors(include_url=False):
        place = _written(fault["loc"], data, missing=fault["type"] == "missing")
        if fault["type"] == "misfits":
            for one in fault["ctx"]["misfits"]:
                yield Misfit(_written((*place, *one.place), data), one.found, one.expected)
            continue
        found = "nothing" if fault["type"] == "missing" else _shown(fault["input"])
        ctx = fault.get("ctx", {})
        if fault["type"] == "extra_forbidden":
            keys = [str(key) for one in _at(model, fault["loc"][:-1]) for key in _fields(one)]
            found, wanted = "an unknown key", nearest(str(place[-1]), keys)
        elif fault["type"].startswith("union_tag"):
            place = (*place, ctx["discriminator"].strip("'"))
            tags = [tag for one in _at(model, fault["loc"]) for tag in _tags(one)]
            found, wanted = _shown(ctx.get("tag")), nearest(str(ctx.get("tag")), tags)
        elif fault["type"] == "literal_error":
            wanted = nearest(str(fault["input"]), re.findall("'([^']*)'", ctx["expected"]))
        elif fault["type"] in _EXPECTED:
            wanted = _EXPECTED[fault["type"]].format(**ctx)
        else:
            wanted = fault["msg"].removeprefix("Input should be ")
        yield Misfit(place, found, wanted)


def _written(loc: Place, data: Any, *, missing: bool = False) -> Place:
    """The part of pydantic's `loc` that stands in the text: no union tags, no steps of a spelling that was completed.
    `missing`: the last part is a key that does not stand there."""
    place: list[str | int] = []
    for part in loc[:-1] if missing else loc:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if inside:
            place.append(part)
            data = data[part]
    return (*place, loc[-1]) if missing else tuple(place)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "...")
    if isinstance(value, list | tuple | dict):
        return "a mapping" if isinstance(value, dict) else f"a list of {len(value)}"
    return "nothing" if value is None else str(value).lower()


def _alternatives(annotation: Any) -> list[Any]:
    """The models and containers that an annotation allows."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [one for choice in get_args(annotation) for one in _alternatives(choice)]
    return [annotation]


def _fields(one: Any) -> dict[str | int, Any]:
    """Key -> annotation of a model; of anything else, nothing."""
    if not (isinstance(one, type) and issubclass(one, BaseModel)):
        return {}
    return {each.alias or name: each.annotation for name, each in one.model_fields.items()}


def _tags(one: Any) -> tuple[str, ...]:
    return get_args(_fields(one).get("kind")) + get_args(_fields(one).get("action"))


def _at(model: Any, loc: Place) -> list[Any]:
    """What may stand at `loc` (as pydantic gives it, with union tags)."""
    here = _alternatives(model)
    for part in loc:
        inside: list[Any] = []
        for one in here:
            if part in _tags(one):
                inside.append(one)
            elif fields := _fields(one):
                inside += _alternatives(fields[part]) if part in fields else []
            else:
                inside += [alternative for arg in get_args(one)[-2:] for alternative in _alternatives(arg)]
        here = inside
    return here


_EXPECTED = {
    "expected": "{what}",
    "missing": "this key",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text (in quotes where it looks like something else)",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-', a letter or digit first",
    "string_too_long": "at most {max_length} characters",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
