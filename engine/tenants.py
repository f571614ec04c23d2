"""Tenants: from API keys, never from what a client says about itself."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """Whose a request is, by pseudonyms. A tenant without an organisation is one of its own."""

    tenant: str
    organisation: str
    user: str | None = None


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
        return self._keyed("t", tenant)

    def identity(self, tenant: str, user: str | None = None) -> Owner:
        """Tenant, its organisation (what stands before a slash in its name) and the user whom the tenant names."""
        organisation = tenant.partition("/")[0]
        named = self._keyed("u", f"{tenant}/{user}") if user else None
        return Owner(self.pseudonym(tenant), self._keyed("o", organisation), named)

    def _keyed(self, kind: str, name: str) -> str:
        return f"{kind}-{hmac.new(self._ledger_key, name.encode(), hashlib.sha256).hexdigest()[:10]}"
