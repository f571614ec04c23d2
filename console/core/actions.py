"""The one table of actions: keys, words, and the screens on which they work.

Invariant: bindings, footers and help are made from this table; no screen names a key of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.places import EVERYWHERE, Place


@dataclass(frozen=True)
class Action:
    """`id` is stable; `shown` is the key as written for people; `hint` > 0 puts it into the footer at that place."""

    id: str
    keys: tuple[str, ...]
    shown: str
    words: str
    places: tuple[Place, ...] = EVERYWHERE
    hint: int = 0
    hint_words: str = ""


ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "↵", "open what is selected", hint=1, hint_words="open"),
    Action("back", ("escape", "backspace"), "esc", "back; never quits", (Place.INCIDENT,), 2, "back"),
    Action("pause", ("space",), "space", "pause the view, or follow again", hint=5, hint_words="pause"),
    Action("follow", ("F",), "F", "follow the ledger again"),
    Action("next_found", ("n",), "n", "next page that was not its reader's", (Place.INCIDENT,), 3, "next ✗"),
    Action("previous_found", ("N",), "N", "previous page that was not its reader's", (Place.INCIDENT,)),
    Action("next_response", ("full_stop",), ".", "next response of the incident", (Place.INCIDENT,), 4, "response"),
    Action("previous_response", ("comma",), ",", "previous response of the incident", (Place.INCIDENT,)),
    Action("next_incident", ("right_curly_bracket",), "}", "next incident", (Place.INCIDENT,)),
    Action("previous_incident", ("left_curly_bracket",), "{", "previous incident", (Place.INCIDENT,)),
    Action("down", ("j",), "j ↓", "down"),
    Action("up", ("k",), "k ↑", "up"),
    Action("first", ("g",), "g", "first row"),
    Action("last", ("G",), "G", "last row"),
    Action("half_down", ("ctrl+d",), "^d", "half a page down"),
    Action("half_up", ("ctrl+u",), "^u", "half a page up"),
    Action("copy", ("y",), "y", "copy the command that opens this view", hint=6, hint_words="copy"),
    Action("help", ("question_mark",), "?", "keys of this screen and the legend", hint=9, hint_words="help"),
    Action("quit", ("q",), "q", "quit", hint=8, hint_words="quit"),
)


def actions_of(place: Place) -> tuple[Action, ...]:
    """What works on a screen, in the order of the help."""
    return tuple(action for action in ACTIONS if place in action.places)


def hints_of(place: Place) -> tuple[Action, ...]:
    """At most eight actions for the footer, in their order."""
    shown = [action for action in actions_of(place) if action.hint]
    return tuple(sorted(shown, key=lambda action: action.hint)[:8])
