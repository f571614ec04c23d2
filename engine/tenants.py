"""Tenants: from API keys, never from what a client says about itself."""

from __future__ import annotations

import hashlib
import hmac


class Tenants:
    """API keys of the known tenants, and the pseudonyms under which the ledger knows them."""

    def __init__(self, keys: dict[str, str], ledger_key: str) -> None:
        self._tenant_of = {key.encode(): tenant for tenant, key in keys.items()}
        self._ledger_key = ledger_key.encode()

    def from_authorization(self, header: str | None) -> str | None:
        """The tenant of an `Authorization: Bearer` header; None where the key is not known."""
        scheme, _, key = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        # Every key is compared, so that time tells nothing about how close a guess came.
        given = key.strip().encode()
        found = [tenant for known, tenant in self._tenant_of.items() if hmac.compare_digest(known, given)]
        return found[0] if found else None

    def pseudonym(self, tenant: str) -> str:
        """The keyed pseudonym that stands in the ledger."""
        return "t-" + hmac.new(self._ledger_key, tenant.encode(), hashlib.sha256).hexdigest()[:10]
