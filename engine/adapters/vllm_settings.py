"""Settings of the vLLM recorder, from the environment of the server's processes.

Invariant: without KVW_LEDGER nothing is recorded and nothing is hooked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.adapters.recorder_settings import Settings

ROLES = ("prefill", "decode")
TENANT_FIELD = "tenant"


@dataclass(frozen=True)
class VllmSettings:
    """Where and how to record.

    `role`: None = by the server's kv_role. `tenant_field`: the field of `vllm_xargs` that names the tenant. `one_rid`:
    the site's proxy gives a request one X-Request-Id on both sides, so that another's id on decode is another's request.
    `random_ids`: vLLM puts eight random digits after the ids that the API gives.
    """

    place: Settings
    role: str | None = None
    tenant_field: str = TENANT_FIELD
    one_rid: bool = False
    random_ids: bool = True

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> VllmSettings | None:
        """Settings; None where recording is off. Raises ValueError for one that cannot be used."""
        place = Settings.from_environment(environment)
        if place is None:
            return None
        role = environment.get("KVW_ROLE") or None
        if role is not None and role not in ROLES:
            raise ValueError(f"KVW_ROLE={role}: give prefill or decode, or leave it out")
        field = environment.get("KVW_TENANT_FIELD") or TENANT_FIELD
        plain = environment.get("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "0")
        return cls(place, role, field, environment.get("KVW_ONE_RID", "") == "1", plain in ("", "0"))
