"""Keys of the action table as a browser names them.

Invariant: no template names a key of an action of its own.
"""

from __future__ import annotations

from console.core.actions import ACTIONS

_NAMED = {"space": " ", "↵": "Enter", "esc": "Escape"}
_SHOWN = {action.id: action.shown for action in ACTIONS if action.web}


def web_key(action_id: str) -> str:
    """What `event.key` is for an action. Raises KeyError for one that browsers have not."""
    shown = _SHOWN[action_id].split(" ")[0]
    return _NAMED.get(shown, shown)
