"""What a long command is doing, on a terminal; nothing is written where there is none.

Invariant: it goes to stderr and leaves nothing behind, so that data and words are the same with it and without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str], None]


def silent(stage: str) -> None:
    """Tells nobody."""


@contextmanager
def stages() -> Iterator[Tell]:
    """Tells the stage that is under way, and how long those before it took."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    begun = time.monotonic()
    done: list[str] = []
    with console.status("") as status:

        def tell(stage: str) -> None:
            nonlocal begun
            now = time.monotonic()
            if done:
                done[-1] += f" {now - begun:.0f} s"
            begun = now
            done.append(stage)
            status.update(", ".join(done) + " ...")

        yield tell
