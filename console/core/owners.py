"""Tenants as letters and hues: the same tenant has the same letter on every screen of one snapshot.

Invariant: at most six tenants have a letter of their own; the rest is `z`. Letters go by first appearance in the
ledger, so that they stay as it grows; only where there are more than six do tenants of incidents come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.core.marks import OTHER_COLOUR, OTHER_LETTER, OWNER_COLOURS, OWNER_LETTERS


@dataclass(frozen=True)
class Owner:
    """A tenant as drawn. `rank` is its place among the letters; `other` tenants share the last."""

    tenant: str | None
    letter: str
    colour: str
    rank: int


OTHER = Owner(None, OTHER_LETTER, OTHER_COLOUR, len(OWNER_LETTERS))


@dataclass(frozen=True)
class Owners:
    """The tenants of a snapshot."""

    named: tuple[Owner, ...]
    others: int

    def of(self, tenant: str | None) -> Owner:
        """The tenant's letter and hue."""
        for owner in self.named:
            if owner.tenant == tenant:
                return owner
        return OTHER


def name_owners(appeared: Iterable[str], involved: frozenset[str]) -> Owners:
    """`appeared`: tenants in order of first appearance. `involved`: those of incidents."""
    tenants = list(dict.fromkeys(appeared))
    if len(tenants) > len(OWNER_LETTERS):
        tenants = [t for t in tenants if t in involved] + [t for t in tenants if t not in involved]
    named = tenants[: len(OWNER_LETTERS)]
    owners = tuple(
        Owner(tenant, letter, colour, rank)
        for rank, (tenant, letter, colour) in enumerate(zip(named, OWNER_LETTERS, OWNER_COLOURS, strict=False))
    )
    return Owners(owners, len(tenants) - len(named))
