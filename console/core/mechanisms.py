"""The fault classes in words for the person on call: what went wrong, and where to look first."""

from __future__ import annotations

from dataclasses import dataclass

from forensics.verdict import MECHANISM_UNKNOWN


@dataclass(frozen=True)
class Mechanism:
    """`short` fits a table; `story` is one sentence; `runbook` is the runbook that fits, if there is one."""

    code: str
    short: str
    story: str
    runbook: str | None = None


RECORD_LOST = "record lost"
_DETECTOR = "detector "

_KNOWN = (
    Mechanism(
        "M1",
        "short handoff",
        "prefill sent fewer pages than decode had reserved, success was reported, and decode read them all",
        "RB-01",
    ),
    Mechanism(
        "M2",
        "fail-open commit",
        "a transfer failed, the failure was lost, and decode committed all the same",
    ),
    Mechanism(
        "M3",
        "late write",
        "a remote write landed after its pages had been freed and given to another request",
    ),
    Mechanism(
        "M4",
        "fence defeated",
        "a hold ended before its writes had drained, and one landed on the next owner",
    ),
    Mechanism(
        "M5",
        "source reused",
        "the source pages were freed or rewritten while they were being read",
    ),
    Mechanism(
        "M6",
        "read before ready",
        "pages were sent before their content had been computed",
    ),
    Mechanism(
        "M7",
        "freed while read",
        "pages were freed while a request still read them, and another request filled them",
    ),
    Mechanism(
        "M8",
        "double owner",
        "one page was given to two requests at once",
    ),
    Mechanism(
        "M9",
        "leak",
        "pages of ended requests were never given back",
    ),
    Mechanism(
        "M10",
        "held capacity",
        "pages kept on purpose fill the pool",
    ),
    Mechanism(
        "M11",
        "identity collision",
        "two handoffs shared one room, slot or transfer id",
    ),
    Mechanism(
        "M12",
        "incomplete key",
        "cached pages were found by a key that lacks an identity",
    ),
    Mechanism(
        "M13",
        "wrong geometry",
        "bytes landed on pages that no grant names",
    ),
    Mechanism(
        "M14",
        "partial state",
        "only some of a request's buffers were restored",
    ),
    Mechanism(MECHANISM_UNKNOWN, "mechanism ?", "wrong content was read; the record does not show how it came there"),
    Mechanism("P0", "shared cache", "cached pages were shared between tenants, as the policy of this engine allows"),
    Mechanism(RECORD_LOST, "record lost", "a gap or an undecidable order lies between origin and read"),
)
MECHANISMS: dict[str, Mechanism] = {m.code: m for m in _KNOWN}


def mechanism(code: str) -> Mechanism:
    """What is behind a cause; a code that this console does not know is shown as it is."""
    if code.startswith(_DETECTOR):
        return Mechanism(code, code, "a detector saw something, and no response that is judged rests on it")
    return MECHANISMS.get(code) or Mechanism(
        code, code, "this console has no words for this class; see docs/verdicts.md"
    )


def title(code: str) -> str:
    """`M1 short handoff`, `record lost`, `detector D8`."""
    known = mechanism(code)
    return f"{code} {known.short}" if code[:1] in ("M", "P") and code[1:].isdigit() else known.short
