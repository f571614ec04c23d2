"""The command palette: every action of the screen that is open, by its words, with its key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from console.core.actions import Action, actions_of
from console.tui.screen_base import DeskScreen

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp


class Actions(Provider):
    """Actions of the table that make sense to be chosen by name."""

    def _there(self) -> Iterator[Action]:
        if isinstance(self.screen, DeskScreen):
            yield from (a for a in actions_of(self.screen.PLACE) if a.command or a.hint)

    def _hit(self, action: Action) -> tuple[str, partial[None]]:
        shown = f"  {action.shown}" if action.shown else ""
        return f"{action.words}{shown}", partial(cast("ConsoleApp", self.app).ask_or_do, action.id)

    async def discover(self) -> Hits:
        """All of them."""
        for action in self._there():
            words, call = self._hit(action)
            yield DiscoveryHit(words, call, help=f":{action.command}" if action.command else "")

    async def search(self, query: str) -> Hits:
        """Those whose words match."""
        matcher = self.matcher(query)
        for action in self._there():
            words, call = self._hit(action)
            score = max(matcher.match(words), matcher.match(action.command))
            if score > 0:
                yield Hit(score, matcher.highlight(words), call, help=f":{action.command}" if action.command else "")
