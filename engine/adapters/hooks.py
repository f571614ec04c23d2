"""A hook: one function of an engine, what it must take, and which handler is called round it.

Invariant: a hook reads what the engine already holds on the host. None asks the device for anything, none changes an
argument or a result.
"""

from __future__ import annotations

from dataclasses import dataclass

BEFORE, AFTER = "BEFORE", "AFTER"


@dataclass(frozen=True)
class Hook:
    """One function. `needs`: parameters by name that the handler reads; `table`: whose rows are missed without it.

    `root`: the package that `path` starts from. `backend`: the transfer backend that it belongs to, None = all.
    `since`: the first version that has it.
    """

    handler: str
    path: str
    kind: str
    needs: tuple[str, ...]
    table: str
    backend: str | None = None
    since: str = ""
    root: str = ""

    @property
    def target(self) -> str:
        """Its dotted name."""
        return self.root + self.path
