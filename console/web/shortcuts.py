"""The action table as a page's own script reads it.

Invariant: only what works in a browser is said there, and every key of it as a browser names keys.
"""

from __future__ import annotations

from typing import Any

from console.core.actions import ACTIONS, Action
from console.core.places import Place
from console.web.moves import IN_PAGE

_KEYS = {
    "enter": "Enter", "escape": "Escape", "backspace": "Backspace", "space": " ", "slash": "/", "colon": ":", "question_mark": "?",
    "plus": "+", "minus": "-", "full_stop": ".", "comma": ",", "left_square_bracket": "[", "right_square_bracket": "]",
    "left_curly_bracket": "{", "right_curly_bracket": "}", "greater_than_sign": ">", "less_than_sign": "<",
}  # fmt: skip
"""A terminal's names of keys in a browser's; a single character is its own."""


def key_of(name: str) -> str:
    """A key as a browser names it; one with Ctrl as `ctrl+k`."""
    return name if len(name) == 1 or name.startswith("ctrl+") else _KEYS[name]


def shortcuts(place: Place) -> list[dict[str, Any]]:
    """What there is in a browser, and whether it works on this screen."""
    return [
        {
            "id": action.id, "keys": [key_of(key) for key in action.keys], "shown": action.shown, "words": action.words,
            "command": action.command, "argument": action.argument, "here": place in action.places, "inPage": action.id in IN_PAGE,
        }
        for action in ACTIONS
        if action.web
    ]  # fmt: skip


def helped(place: Place) -> list[Action]:
    """What the help of a screen lists."""
    return [action for action in ACTIONS if action.web and place in action.places]
