"""Small charts of characters: a braille line, stacked blocks.

Invariant: a chart is exactly as wide and high as it was told to be; where there is nothing to draw, it is blank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from console.core.view import View

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def resampled(values: Sequence[float], n: int) -> list[float]:
    """`values` as `n` columns of equal length, each the highest of those that fall into it, so that no peak is lost."""
    if not values:
        return [0.0] * n
    edges = [i * len(values) / n for i in range(n + 1)]
    return [max(values[int(a) : max(math.ceil(b), int(a) + 1)]) for a, b in itertools.pairwise(edges)]


def placed(points: Sequence[tuple[float, float]], n: int, first: float, last: float) -> list[float | None]:
    """Points (x, y) in `n` columns over [first, last]: the lowest y of each; None where there is none."""
    columns: list[float | None] = [None] * n
    reach = max(last - first, 1e-9)
    for x, y in points:
        at = min(int((x - first) / reach * n), n - 1)
        if at >= 0:
            there = columns[at]
            columns[at] = y if there is None else min(there, y)
    return columns


def course(times: Sequence[float], values: Sequence[float], n: int) -> list[float | None]:
    """Values over their times in `n` columns, with a straight line between two that are known."""
    columns = placed(list(zip(times, values, strict=True)), n, times[0], times[-1] + 1)
    known = [(i, value) for i, value in enumerate(columns) if value is not None]
    for (a, start), (b, stop) in itertools.pairwise(known):
        columns[a:b] = [start + (stop - start) * k / (b - a) for k in range(b - a)]
    return columns


def braille(columns: Sequence[float | None], height: int, low: float, high: float) -> list[str]:
    """A line through two values per character; a gap in the values is a gap in the line. `low` is the bottom."""
    cells = [[0] * math.ceil(len(columns) / 2) for _ in range(height)]
    rows, reach = height * 4, max(high - low, 1e-9)
    before: int | None = None
    for x, value in enumerate(columns):
        if value is None:
            before = None
            continue
        y = rows - 1 - min(max(int((value - low) / reach * rows), 0), rows - 1)
        start, stop = sorted((y, before if before is not None else y))
        for dot in range(start, stop + 1):
            cells[dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
        before = y
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in row) for row in cells]


def points_of(view: View) -> tuple[tuple[int | None, str], ...]:
    """What is pointed at and what is marked, with the characters that say so."""
    return (view.cursor_us, "▲"), (view.mark_us, "m")


def pointed(axis: str, first: float, last: float, points: Sequence[tuple[float | None, str]]) -> str:
    """The words under a chart over [first, last] with a character where each point lies, the first of two in its place."""
    marks = list(axis)
    for at, glyph in reversed(points):
        if at is not None and first <= at <= last:
            marks[min(int((at - first) / max(last - first, 1) * len(axis)), len(axis) - 1)] = glyph
    return "".join(marks)


def blocks(columns: Sequence[float], height: int, top: float) -> list[str]:
    """Columns up to `top`, the highest row first; a value that is not 0 is never drawn as nothing."""
    lines = []
    for row in range(height - 1, -1, -1):
        line = ""
        for value in columns:
            eighths = min(math.ceil(value / top * height * 8 - 1e-9), height * 8) if top > 0 else 0
            line += _EIGHTHS[min(max(eighths - row * 8, 0), 8)]
        lines.append(line)
    return lines


def layered(layers: Sequence[Sequence[float]], height: int, top: float, glyphs: Sequence[str]) -> list[str]:
    """Layers on one another up to `top`, the highest row first, each in its own character; of a row that several share,
    the lowest layer's. A column that is not 0 is never drawn as nothing.
    """
    columns = list(zip(*layers, strict=True))
    grid = [[" "] * len(columns) for _ in range(height)]
    for x, values in enumerate(columns):
        below, drawn = 0.0, 0
        for value, glyph in zip(values, glyphs, strict=True):
            below += value
            reach = min(math.ceil(below / top * height - 1e-9), height) if top > 0 else 0
            for row in range(drawn, reach):
                grid[height - 1 - row][x] = glyph
            drawn = max(drawn, reach)
    return ["".join(line) for line in grid]
