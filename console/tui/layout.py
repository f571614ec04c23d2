"""How much stands side by side, by the columns of the terminal: a list, a list and its detail, a workspace.

Invariant: the style sheet knows the same widths, as the classes of BREAKPOINTS.
"""

from __future__ import annotations

DETAIL_FROM, WORKSPACE_FROM = 100, 140
BREAKPOINTS = [(0, "-narrow"), (DETAIL_FROM, "-middle"), (WORKSPACE_FROM, "-wide")]


def has_detail(width: int) -> bool:
    """Whether a list has its detail beside it."""
    return width >= DETAIL_FROM


def is_workspace(width: int) -> bool:
    """Whether everything about one thing stands beside it, too."""
    return width >= WORKSPACE_FROM
