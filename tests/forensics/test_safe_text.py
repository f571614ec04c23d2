"""Names that a client chose reach a terminal and a spreadsheet as text, whatever is in them."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest

from forensics.render import write
from forensics.safe_text import no_formula, safe_text
from forensics.window import zone

NAMES = [
    "[red]r-1[/red]",
    "[/]",
    ":smile:",
    "a\x1b]52;c;aGk=\x07b",
    "line\nend",
    "\u202eright to left",
    "ünïcode 名",
    '=HYPERLINK("http://x")',
]


def rendered(fmt: str) -> str:
    out = io.BytesIO()
    write(
        pa.table({"rid": NAMES, "donors": [[name] for name in NAMES]}),
        fmt,
        out,
        envelope={},
        columns=["rid", "donors"],
        tz=zone("UTC"),
    )
    return out.getvalue().decode()


@pytest.mark.parametrize("fmt", ["table", "md"])
def test_nothing_in_a_name_is_obeyed(fmt: str):
    lines = rendered(fmt).splitlines()
    assert len(lines) == len(NAMES) + (2 if fmt == "md" else 1)
    for name, line in zip(NAMES, lines[-len(NAMES) :], strict=True):
        assert line.count(safe_text(name)) == 2
        assert line.isprintable()


def test_a_spreadsheet_computes_nothing():
    read = list(csv.reader(io.StringIO(rendered("csv"))))
    assert [row[0] for row in read[1:]] == [*NAMES[:-1], "'" + NAMES[-1]]
    assert [no_formula(text)[0] for text in ("=1", "+1", "-1", "@x", "\t=1")] == ["'"] * 5
    assert no_formula("r-1") == "r-1"


def test_what_is_escaped_can_be_told_from_what_is_shown():
    assert safe_text("a\x1b\n\u202eb") == "a\\x1b\\n\\u202eb"
    assert safe_text("ünïcode 名") == "ünïcode 名"
