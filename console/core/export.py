"""A table as the view shows it, as a file: CSV, Parquet, JSON lines, Markdown.

Invariant: what is exported is what is seen: the same rows in the same order, under the same names; and it says which
view of which ledger it is.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from console.core.redaction import Redaction
from console.core.rollup import Rollup
from console.core.sheet import Sheet, Shown
from console.core.view import View
from console.core.view_link import to_link
from forensics.render import write

FORMATS = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "md": "text/markdown",
}
"""By name, with their media types."""


class ExportError(ValueError):
    """A format that there is not."""


@dataclass(frozen=True)
class Exported:
    """A file: its name, its media type, its bytes."""

    name: str
    media_type: str
    content: bytes


def told_view(view: View, redaction: Redaction) -> str:
    """The view's link; what it says of names is left out where they are covered."""
    return to_link(replace(view, filter="", rid=None, title="") if redaction.words else view)


def export(known: Rollup, sheet: Sheet, left: Shown, view: View, fmt: str, redaction: Redaction) -> Exported:
    """`left` is what the view leaves of the sheet (`sheet.shown`). Raises ExportError."""
    if fmt not in FORMATS:
        raise ExportError(f"there is no format {fmt!r}; there are: {', '.join(FORMATS)}")
    rows = redaction.cover(left.rows)
    out = io.BytesIO()
    about = envelope(known, sheet, left, view, redaction)
    columns = [name for name in rows.column_names if name not in sheet.columns or sheet.columns[name].shown]
    write(rows, fmt, out, envelope=about, columns=columns, tz=ZoneInfo("UTC"))
    content = out.getvalue()
    if fmt == "md":
        content += f"\n{sheet.name} of {known.name}, {left.words}; view {told_view(view, redaction)}\n".encode()
    return Exported(f"{known.name}-{sheet.name}.{fmt}", FORMATS[fmt], content)


def envelope(known: Rollup, sheet: Sheet, left: Shown, view: View, redaction: Redaction) -> dict[str, Any]:
    """Which view of which ledger it is, as Parquet keeps it with the rows."""
    return {
        "ledger": known.name, "table": sheet.name, "view": told_view(view, redaction), "rows": len(left.rows), "of": left.total,
        "hidden": left.hidden, "outside": left.outside, "left_out": left.left_out, "ledger_read_us": known.taken_us,
        "record": known.record_words, "names": redaction.words or "as recorded",
    }  # fmt: skip
