"""Which mechanisms a verdict may name where one fault alone was on, and why.

Invariant: a mechanism that is not listed for a fault is a wrong one.
"""

from __future__ import annotations

UNDECIDED = "mechanism unknown"

OF_FAULT: dict[str, frozenset[str]] = {
    # The placeholder's page alone is sent; the pages behind it keep what lay there before their grant.
    "short-handoff": frozenset({"M1"}),
    # The failed batch has a `fail` row under the grant's tag.
    "fail-open": frozenset({"M2"}),
    # Freed at once; where the fault struck the writer alone, held until a timer let go.
    "late-write": frozenset({"M3", "M4"}),
    # The pages were held, and let go by an ack that came too early.
    "early-ack": frozenset({"M4"}),
    # The pages were held, and let go by the deadline while the writes went on.
    "lost-ack": frozenset({"M4"}),
    # Freed source pages, taken and written by another before they were read. Where the next owner's bytes are there already
    # when the page is read, the transfer reads foreign content: M5 too.
    "source-reuse": frozenset({"M5"}),
    # The post precedes the write of the pass that fills the pages.
    "early-post": frozenset({"M6"}),
    # Read on after the page's next owner wrote it.
    "early-free": frozenset({"M7"}),
    # Two live owners of one page. What the first writes into it after the second reserved it is M8; a transfer granted to
    # either lands under a tag that is not the other's.
    "double-free": frozenset({"M8"}),
    "leak": frozenset(),
    "slow-drain": frozenset(),
    "room-collision": frozenset({"M11"}),
    "shifted-pages": frozenset({"M13"}),
}
