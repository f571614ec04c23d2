"""The ledger's one exception."""

from __future__ import annotations


class LedgerError(Exception):
    """Says what is wrong, where, and what to do."""
