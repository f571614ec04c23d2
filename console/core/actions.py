"""The one table of actions: keys, commands, words, and the screens on which they work.

Invariant: bindings, footers, palettes, help, the web's shortcuts and the cheat sheet are made from this table; no screen
names a key or a command of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.places import EVERYWHERE, TABS, Place


@dataclass(frozen=True)
class Action:
    """`id` is stable: in addresses, palettes and key maps. `shown` is the key as written for people, `command` the word
    after `:` and `argument` what it takes (`[x]` may be left out). `hint` > 0 puts it into the footer at that place.
    `web`: whether a browser has it by the same key. `writes`: it is kept in the state directory; nothing changes the ledger.
    """

    id: str
    keys: tuple[str, ...]
    shown: str
    words: str
    places: tuple[Place, ...] = EVERYWHERE
    hint: int = 0
    hint_words: str = ""
    command: str = ""
    argument: str = ""
    web: bool = True
    writes: bool = False


_LISTS = (Place.INCIDENTS, Place.HELD, Place.LATENCY, Place.EVENTS, Place.RUNS)
_TIME = (Place.OVERVIEW, Place.PAGES, Place.HELD, Place.LATENCY, Place.EVENTS, Place.INCIDENT)
_ONE = (Place.INCIDENT,)
_SIDEWAYS = (Place.PAGES, Place.OVERVIEW, Place.HELD, Place.LATENCY)
_RUNS = (Place.RUNS,)
_MARKED = (Place.INCIDENTS, Place.INCIDENT)

ACTIONS: tuple[Action, ...] = (
    *(
        Action(f"go_{place}", (str(number),), str(number), f"the screen {place.value.capitalize()}", command=place.value)
        for number, place in enumerate(TABS, start=1)
    ),
    Action("open", ("enter",), "↵", "open what is selected", hint=1, hint_words="open"),
    Action("back", ("escape", "backspace"), "esc", "all panes again, then no mark, then back; never quits", _ONE, 2, "back"),
    Action("restore", ("escape",), "esc", "all panes again, then no mark; never quits", TABS, web=False),
    Action("zoom_pane", ("f",), "f", "the pane with the focus alone, and all again; tab goes to the next pane", web=False),
    Action("incident", (), "", "an incident", command="incident", argument="ID"),
    Action("response", (), "", "a response, in its incident", command="resp", argument="ID"),
    Action("page", (), "", "a page, on the page map", command="page", argument="NUMBER"),
    Action("pause", ("space",), "space", "pause the view or follow again; in a replay, play or stand", hint=5, hint_words="pause"),
    Action("follow", ("F",), "F", "follow the ledger again", command="follow"),
    Action("range", (), "", "look at a time: now-15m, -6h, A..B, I-98584c01±2m, all", command="range", argument="RANGE"),
    Action("at", (), "", "point at a moment", command="at", argument="TIME"),
    Action("earlier", ("left_square_bracket",), "[", "point one stretch earlier", _TIME),
    Action("later", ("right_square_bracket",), "]", "point one stretch later", _TIME),
    Action("zoom_in", ("plus",), "+", "half as much time around what is pointed at", _TIME),
    Action("zoom_out", ("minus",), "-", "twice as much time", _TIME),
    Action("range_back", ("Z",), "Z", "the range from before an incident was opened, or its own time again", _TIME),
    Action("zoom_fit", ("z",), "z", "the whole record", _TIME),
    Action("mark", ("m",), "m", "mark what is pointed at; a second mark makes the range between the two", _TIME, command="mark"),
    Action("replay", ("R",), "R", "play the record from what is pointed at", command="replay", argument="[SPEED]"),
    Action("faster", ("greater_than_sign",), ">", "play faster"),
    Action("slower", ("less_than_sign",), "<", "play slower"),
    Action(
        "filter", ("slash",), "/", "filter: field:value, field>=3, -field:value, words",
        hint=3, hint_words="filter", command="filter", argument="[FILTER]",
    ),
    Action("tenant", (), "", "only one tenant's", command="tenant", argument="NAME"),
    Action("sort", ("s",), "s", "sort by a column; again to turn it round", _LISTS, command="sort", argument="COLUMN or -COLUMN"),
    Action("next_found", ("n",), "n", "next page that was not its reader's", (*_ONE, Place.PAGES), 3, "next ✗"),
    Action("previous_found", ("N",), "N", "previous page that was not its reader's", (*_ONE, Place.PAGES)),
    Action("next_response", ("full_stop",), ".", "next response of the incident", _ONE, 4, "response"),
    Action("previous_response", ("comma",), ",", "previous response of the incident", _ONE),
    Action("next_incident", ("right_curly_bracket",), "}", "next incident", _TIME),
    Action("previous_incident", ("left_curly_bracket",), "{", "previous incident", _TIME),
    Action("what_if", ("w",), "w", "try other rates of holding", (Place.HELD,), 4, "what if", "what-if", "[rate=F] [hold=S] [pages=N]"),
    Action("ack", ("a",), "a", "say that you have seen it; needs --write", _MARKED, 4, "ack", "ack", "[WORDS]", writes=True),
    Action(
        "silence", ("S",), "S", "silence it for a time; ends with the incident; needs --write", _MARKED,
        command="silence", argument="LENGTH [WORDS]", writes=True,
    ),
    Action("unsilence", ("U",), "U", "end its silence; needs --write", _MARKED, command="unsilence", argument="[ID] [WORDS]", writes=True),
    Action("silences", (), "", "the silences that go on: who, why, until when", command="silences", web=False),
    Action("note", ("M",), "M", "note something, with the time; needs --write", _MARKED, command="note", argument="WORDS", writes=True),
    Action(
        "run", ("r",), "r", "start the selected runbook; needs --write", _RUNS, 3, "start",
        command="run", argument="[RUNBOOK] [NAME=VALUE]", web=False, writes=True,
    ),
    Action(
        "answer", ("a",), "a", "answer what the selected run waits for; needs --write", _RUNS, 2, "answer",
        command="answer", argument="[WORDS]", web=False, writes=True,
    ),
    Action(
        "resume", ("c",), "c", "go on with the selected run; needs --write", _RUNS, 4, "go on", command="resume", web=False, writes=True,
    ),
    Action(
        "abort", ("x",), "x", "abort the selected run; needs --write", _RUNS, 4, "abort",
        command="abort", argument="[WHY]", web=False, writes=True,
    ),
    Action("down", ("j",), "j ↓", "down"),
    Action("up", ("k",), "k ↑", "up"),
    Action("left", ("h", "left"), "h ←", "left: on the page map a cell, elsewhere one stretch earlier", _SIDEWAYS, web=False),
    Action("right", ("l", "right"), "l →", "right: on the page map a cell, elsewhere one stretch later", _SIDEWAYS, web=False),
    Action("pool", ("p",), "p", "the next pool", (Place.PAGES,), 4, "pool", web=False),
    Action("first", ("g",), "g", "first row"),
    Action("last", ("G",), "G", "last row"),
    Action("half_down", ("ctrl+d",), "^d", "half a page down", web=False),
    Action("half_up", ("ctrl+u",), "^u", "half a page up", web=False),
    Action("copy", ("y",), "y", "copy the address and the command that open this view", hint=6, hint_words="copy", command="copy"),
    Action("share", ("Y",), "Y", "copy the address with its times written out", command="share"),
    Action(
        "export", ("e",), "e", "export what is seen: csv, parquet, jsonl, md; bundle",
        hint=7, hint_words="export", command="export", argument="FORMAT",
    ),
    Action("save_view", ("V",), "V", "save the view under a name", command="save", argument="NAME", web=False, writes=True),
    Action("view", ("v",), "v", "open a saved view", command="view", argument="NAME"),
    Action("ledger", ("L",), "L", "another of the ledgers that were given, or all of them", command="ledger", argument="NAME"),
    Action("refresh", (), "", "how often the ledger is looked at", command="refresh", argument="LENGTH", web=False),
    Action("mouse", ("f2",), "F2", "leave the mouse to the terminal, or take it again", web=False),
    Action("theme", ("T",), "T", "next theme", command="theme", argument="[NAME]"),
    Action("command", ("colon",), ":", "give a command"),
    Action("palette", ("ctrl+k", "ctrl+p"), "^k", "find any command; in the terminal ^p, too"),
    Action("help", ("question_mark",), "?", "keys of this screen and the legend", hint=9, hint_words="help", command="help"),
    Action("quit", ("q",), "q", "quit", hint=8, hint_words="quit", command="quit", web=False),
)  # fmt: skip

BY_ID = {action.id: action for action in ACTIONS}


_MOST_HINTS = 8


def actions_of(place: Place) -> tuple[Action, ...]:
    """What works on a screen, in the order of the help."""
    return tuple(a for a in ACTIONS if place in a.places)


def hints_of(place: Place) -> tuple[Action, ...]:
    """At most eight actions for the footer, in their order; the last two, quit and help, are always among them."""
    shown = sorted((a for a in actions_of(place) if a.hint), key=lambda action: action.hint)
    return tuple(shown if len(shown) <= _MOST_HINTS else [*shown[: _MOST_HINTS - 2], *shown[-2:]])
