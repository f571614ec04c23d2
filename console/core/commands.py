"""What stands behind `:` : a word of the action table and its argument.

Invariant: a command that cannot be read says what it takes; none is guessed, only suggested.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from console.core.actions import ACTIONS, Action


class CommandError(ValueError):
    """A command that there is not, or that lacks what it takes."""


@dataclass(frozen=True)
class Command:
    """An action that was asked for, and what it was given."""

    action: Action
    argument: str = ""


COMMANDS: dict[str, Action] = {action.command: action for action in ACTIONS if action.command}


def parse_command(text: str) -> Command:
    """Read a command, with or without its colon. Raises CommandError."""
    word, _, argument = text.strip().removeprefix(":").strip().partition(" ")
    argument = argument.strip()
    action = COMMANDS.get(word)
    if action is None:
        near = difflib.get_close_matches(word, COMMANDS, 1)
        hint = f"did you mean :{near[0]}?" if near else "? lists what there is"
        raise CommandError(f"there is no command :{word}; {hint}")
    if argument and not action.argument:
        raise CommandError(f":{word} takes nothing")
    if action.argument and not argument and not action.argument.startswith("["):
        raise CommandError(f":{word} takes {action.argument}: {action.words}")
    return Command(action, argument)


def completions(text: str) -> tuple[str, ...]:
    """Commands that begin so, in the order of the table."""
    begun = text.strip().removeprefix(":").lower()
    return tuple(word for word in COMMANDS if word.startswith(begun))
