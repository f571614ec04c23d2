"""The action table as a page of documentation: `python -m console.core.cheat_sheet > docs/console-keys.md`."""

from __future__ import annotations

from console.core.actions import ACTIONS, Action
from console.core.filter_language import ALIASES, ORDERED
from console.core.places import EVERYWHERE, TABS, Place

_HEAD = """# Keys and commands of the console

Made from the action table (`console/core/actions.py`) by `python -m console.core.cheat_sheet > docs/console-keys.md`.
Terminal and browser share keys, commands and addresses; `?` shows those of the screen that is open, `^k` finds any of
them, and what is not in a browser says *terminal only*. Nothing here changes a ledger: what is marked *kept* goes into the state directory.

"""
_TAIL = """
## Ranges

| written | means |
|---|---|
| `now-15m`, `-6h` | from then until now, and on |
| `2026-09-21T14:00:00Z..now-1h` | from one to the other; either may be left out |
| `I-98584c01±2m` | around an incident, from before its first to after its last |
| `2026-09-21T14:13:20Z±30s` | around a moment |
| `all` | the whole record |

A range that does not end in `now` stands still: the view is paused. `now` is the time of the wall while somebody writes the
record, in one that nobody writes its end, and in a replay the moment replayed.

## Filters

| written | means |
|---|---|
| `field:value` | is it, case aside; `*` stands for anything, `a,b` for either |
| `field>=3`, also `> < <=` | of a number, a time (`first>-15m`), or a field whose words have an order |
| `-field:value`, `-word` | not so |
| `word`, `"two words"` | stands in any text column |

"""


def page() -> str:
    """The whole page."""
    everywhere = [action for action in ACTIONS if action.places == EVERYWHERE]
    parts = [_HEAD, _table("Everywhere", everywhere)]
    for place in (*TABS, Place.INCIDENT):
        own = [action for action in ACTIONS if place in action.places and action.places != EVERYWHERE]
        if own:
            parts.append("\n" + _table(place.value.capitalize(), own))
    orders = "".join(f"`{field}`: {', '.join(words)}, the gravest first.\n" for field, words in ORDERED.items())
    short = ", ".join(f"`{short}` for `{field}`" for short, field in ALIASES.items())
    return "".join(parts) + _TAIL + orders + f"Short names: {short}; `P1` to `P4` for the severities.\n"


def _table(title: str, actions: list[Action]) -> str:
    lines = [f"## {title}\n", "| key | command | does |", "|---|---|---|"]
    return "\n".join([*lines, *(_row(action) for action in actions)]) + "\n"


def _row(action: Action) -> str:
    key = f"`{action.shown}`" if action.shown else ""
    command = f"`:{action.command}{' ' + action.argument if action.argument else ''}`" if action.command else ""
    marks = [*(["kept"] if action.writes else []), *([] if action.web else ["terminal only"])]
    return f"| {key} | {command} | {action.words}{' (' + ', '.join(f'*{m}*' for m in marks) + ')' if marks else ''} |"


if __name__ == "__main__":
    print(page(), end="")
