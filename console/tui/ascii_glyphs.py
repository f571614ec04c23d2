"""The console's signs in ASCII, for terminals that have no other.

Invariant: every text becomes ASCII of the same width, so that tables and pictures keep their places; signs that have to be
told apart where they stand together stay apart.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from rich.cells import cell_len

_SIGNS = dict(
    zip(
        "▲◆●·✗≠○▼◂▸■»≈✓▚░▒▓█▁▂▃▄▅▆▇…–—−×±≤≥µΔ←↑→↓↵━─│╌┈┄",
        "!*o.x#Ov<>#>~+%:%%#_.,-=+*~---x+<>ud<^>v<=-|---",
        strict=True,
    )
)
_BRAILLE = range(0x2800, 0x2900)
_UPPER, _LOWER = 0b00011011, 0b11100100
"""Dots of a braille sign in the upper and the lower half of its cell."""


class _Table(dict[int, str]):
    """ASCII by code point, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        made = _ascii(chr(code))
        self[code] = made
        return made


def _ascii(sign: str) -> str:
    code = ord(sign)
    if code < 128:
        return sign
    if sign in _SIGNS:
        return _SIGNS[sign]
    if code in _BRAILLE:
        dots = code - _BRAILLE.start
        return " '.:"[bool(dots & _UPPER) + 2 * bool(dots & _LOWER)]
    if "─" <= sign < "▀":
        return "+"
    width = cell_len(sign)
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return plain if len(plain) == width and plain.isprintable() else "?" * width


_TABLE = _Table()


def in_ascii(text: str) -> str:
    """The text as a terminal without other signs has it."""
    return text.translate(_TABLE)


def asks_ascii(environment: Mapping[str, str]) -> bool:
    """Whether the locale names an encoding that has no other signs; a locale that is not named asks for nothing."""
    named = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    return bool(named) and "utf" not in named.lower()
