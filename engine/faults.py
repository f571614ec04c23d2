"""Faults as named switches, each one class: what it changes, and where.

Invariant: with every switch off the engine is correct; a switch changes one decision and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ShortHandoff:
    """M1, SGLang #30233. Prefill rejects an over-pool prompt by swapping it for one placeholder token, runs that,
    sends its one page and reports success; decode had reserved pages for the whole prompt."""

    name: str = "short-handoff"
    on: bool = False
    placeholder: tuple[int, ...] = (0,)


@dataclass
class LateWrite:
    """M3. Decode frees the pages of an aborted handoff at once; prefill does not cancel the writes it still has.

    `armed` handoffs to come are gated before their first byte, so that a test decides when they land."""

    name: str = "late-write"
    on: bool = False
    armed: int = 0
    gated: dict[int, str] = field(default_factory=dict)  # xfer -> rid

    def take(self, xfer: int, rid: str) -> bool:
        """Whether this handoff's writes are to be gated."""
        if not self.on or self.armed <= 0:
            return False
        self.armed -= 1
        self.gated[xfer] = rid
        return True


@dataclass
class Faults:
    """Every switch of one worker."""

    short_handoff: ShortHandoff = field(default_factory=ShortHandoff)
    late_write: LateWrite = field(default_factory=LateWrite)

    def switch(self, name: str, on: bool) -> None:
        """Turn a fault on or off. Raises ValueError naming the known ones."""
        self.named(name).on = on

    def named(self, name: str) -> ShortHandoff | LateWrite:
        """The switch of a name. Raises ValueError naming the known ones."""
        known = self.by_name()
        if name not in known:
            raise ValueError(f"unknown fault {name!r}; known: {', '.join(known)}")
        return known[name]

    def by_name(self) -> dict[str, ShortHandoff | LateWrite]:
        """Name -> switch."""
        return {fault.name: fault for fault in (self.short_handoff, self.late_write)}

    def active(self) -> list[str]:
        """Names of the faults that are on."""
        return [name for name, fault in self.by_name().items() if fault.on]
