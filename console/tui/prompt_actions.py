"""The lines in which commands and filters are typed: what completes them, and what happens with what was typed.

Invariant: what cannot be read is asked for again, as it was typed, with the reason under it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence

from console.core import commands, filter_completion
from console.core.actions import Action
from console.core.commands import CommandError, parse_command
from console.core.filter_language import FilterError
from console.core.palettes import THEMES
from console.core.source import LedgerSource
from console.core.view import View
from console.tui.app_base import Surroundings
from console.tui.prompt_screen import Ask, PromptScreen
from console.tui.table_actions import TableActions


class PromptActions(TableActions):
    """Asking in a line at the bottom."""

    def __init__(self, source: LedgerSource, view: View, around: Surroundings) -> None:
        super().__init__(source, view, around)
        self._history: dict[str, list[str]] = defaultdict(list)
        """What was typed: commands under `:`, filters under their screen."""

    @property
    @abstractmethod
    def ledgers(self) -> Sequence[str]:
        """Of the ledgers that were given."""

    @abstractmethod
    def perform(self, action: Action, argument: str = "", asked: str | None = None) -> None:
        """Do it. What is refused is said where it was `asked` for, else as a message."""

    def do_command(self) -> None:
        """Give a command."""
        self.ask("")

    def ask(self, text: str, fault: str = "", at: int = 0) -> None:
        """Open the line for commands."""
        self.push_screen(PromptScreen(Ask(":", text, self._complete, self._history[":"], fault, at)), self._commanded)

    def _commanded(self, text: str | None) -> None:
        if text is None or not text.strip():
            return
        self._history[":"].append(text)
        try:
            command = parse_command(text)
        except CommandError as error:
            self.ask(text, str(error))
            return
        self.perform(command.action, command.argument, text)

    def ask_filter(self, text: str | None = None, fault: str = "", at: int = 0) -> None:
        """Open the line for filters, with the present one in it."""
        sheet = self.known.sheets[self.sheet_name]
        text = self.desk.view.filter if text is None else text

        def complete(begun: str) -> tuple[str, ...]:
            return filter_completion.completions(begun, sheet)

        self.push_screen(
            PromptScreen(Ask("/", text, complete, self._history[self.desk.view.place], fault, at)), self._filtered
        )

    def _filtered(self, text: str | None) -> None:
        if text is None:
            return
        self._history[self.desk.view.place].append(text)
        try:
            self.do_filter(text)
        except FilterError as error:
            self.ask_filter(text, str(error), error.at)

    def _complete(self, text: str) -> tuple[str, ...]:
        """Commands, and of some what they take."""
        word, blank, begun = text.partition(" ")
        if not blank:
            return tuple(
                f"{name} " if commands.COMMANDS[name].argument else name for name in commands.completions(text)
            )
        values = self._values().get(word, ())
        return tuple(f"{word} {value}" for value in values if value.lower().startswith(begun.lower()))[:8]

    def _values(self) -> Mapping[str, Sequence[str]]:
        known = self.desk.rollup
        return {
            "incident": [i.key for i in known.incidents] if known else (),
            "tenant": known.head["tenants"] if known else (),
            "sort": self.sort_columns() if known else (),
            "export": ("csv", "parquet", "jsonl", "md", "bundle", "svg"), "theme": list(THEMES), "ledger": self.ledgers,
            "range": ("all", "now-15m", "-6h"), "refresh": ("1s", "2s", "10s", "1m"), "silence": ("30m ", "2h ", "1d "),
        }  # fmt: skip
