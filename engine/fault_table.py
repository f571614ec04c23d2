"""Every fault as a table: for `engine faults`, and for docs/faults.md, which is made of it.

python -m engine.fault_table > docs/faults.md
"""

from __future__ import annotations

import textwrap
from dataclasses import fields

from engine.faults import CLASSES, Fault

WIDTH = 100
_COMMON = {each.name for each in fields(Fault)}
_TITLES = ("precondition", "injection", "ground truth")
_HEAD = """# Faults

What the engine can be made to do wrong, one switch each. With every switch off it is correct; a switch changes one
decision and nothing else. The classes M1 to M14 and P0 are those of the verdict's `mechanism`. `engine faults` prints
this table, docs/operations.md says how to switch them; where the defence against a fault is enforced, the fault is
refused or its outcome is caught.

"""


def plain_table() -> str:
    """For a terminal."""
    blocks = []
    for one in CLASSES:
        lines = [f"{one.name}  {one.mechanism}", *_wrapped("", _summary(one), 2)]
        for title in _TITLES:
            lines += _wrapped(f"{title}: ", _told(one, title), 4)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def markdown_page() -> str:
    """docs/faults.md."""
    rows = ["name", "mechanism", "what it is", *_TITLES, "parameters"]
    lines = [_row(rows), _row(["---"] * len(rows))]
    for one in CLASSES:
        told = [_told(one, title) for title in _TITLES]
        named = ", ".join(f"`{each}`" for each in parameters(one)) or "none"
        lines.append(_row([f"`{one.name}`", one.mechanism, _summary(one), *told, named]))
    return _HEAD + "\n".join(lines) + "\n"


def parameters(one: type[Fault]) -> dict[str, type]:
    """What a fault can be told beside on and off: name -> type."""
    kinds = {"int": int, "str": str}
    return {
        each.name: kinds[str(each.type)]
        for each in fields(one)
        if each.name not in _COMMON and str(each.type) in kinds and each.name != "armed"
    }


def _summary(one: type[Fault]) -> str:
    return " ".join((one.__doc__ or "").split("\n\n")[0].split())


def _told(one: type[Fault], title: str) -> str:
    return str(getattr(one, title.replace(" ", "_")))


def _wrapped(title: str, words: str, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(title + words, WIDTH, initial_indent=space, subsequent_indent=space + "  ")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    print(markdown_page(), end="")
