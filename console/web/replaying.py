"""A replay in a browser: where it stands, and the addresses that play, scrub and leave it.

Invariant: the address is the whole replay; whoever opens it sees the same moment at the same pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from console.core.rollup import Rollup
from console.core.time_moves import incident_beside, stepped
from console.core.view import Replay, View
from console.core.view_link import to_link

STEPS = 1000
"""Of the line on which the moment is dragged."""


@dataclass(frozen=True)
class Replaying:
    """`at_us` within [first_us, last_us]; `shown_us`: the moment that is shown, None = none yet; `links`: addresses by the
    action that leads there.
    """

    at_us: int
    first_us: int
    last_us: int
    shown_us: int | None
    replay: Replay
    links: Mapping[str, str]

    @property
    def is_behind(self) -> bool:
        """Whether the moment that is asked for is still being judged."""
        return self.shown_us != self.at_us

    @property
    def step(self) -> int:
        """Where it stands, of STEPS."""
        return round(STEPS * (self.at_us - self.first_us) / max(self.last_us - self.first_us, 1))


def replaying(view: View, whole: Rollup, reach: tuple[int, int], shown_us: int | None, now_us: int) -> Replaying:
    """`view` replays and points at a moment; `reach`: what is played of the `whole` record; `now_us`: the present's."""
    assert view.replay is not None and view.cursor_us is not None
    replay, at = view.replay, view.cursor_us
    toggled = view.toggled()
    is_over = at >= reach[1] and not replay.is_playing
    views = {
        "pause": replace(toggled, cursor_us=reach[0]) if is_over else toggled,
        "slower": replace(view, replay=replay.faster(-1)), "faster": replace(view, replay=replay.faster(1)),
        "earlier": stepped(view, reach, -1), "later": stepped(view, reach, 1),
        "follow": replace(view.followed(now_us, whole.span), cursor_us=None),
    }  # fmt: skip
    for name, by in (("previous_incident", -1), ("next_incident", 1)):
        beside = incident_beside(whole, reach, at, by)
        if beside is not None:
            views[name] = replace(view, cursor_us=beside)
    return Replaying(at, *reach, shown_us, replay, {name: to_link(each) for name, each in views.items()})
