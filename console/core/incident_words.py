"""An incident in sentences, the same on every screen: what happened, how one knows, whose, and what to do next.

Invariant: the words of verdicts are those of `forensics.verdict`; never "possibly".
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from console.core.incidents import Incident
from console.core.mechanisms import mechanism
from console.core.printable import counted, printable
from console.core.readings import Reading
from console.core.rollup import Rollup
from console.core.times import clock, duration, moment
from forensics.verdict import Verdict


@dataclass(frozen=True)
class Fact:
    """One labelled line."""

    label: str
    words: str


def facts(known: Rollup, incident: Incident) -> tuple[Fact, ...]:
    """What is known of an incident, most important first."""
    own = known.of(incident)
    return (
        Fact("verdict", verdict_words(incident)),
        Fact("cause", f"{incident.title}: {mechanism(incident.cause).story}"),
        Fact("detectors", detector_words(incident)),
        Fact("where", ", ".join(printable(worker) for worker in incident.workers) or "not known"),
        Fact("tenants", tenant_words(known, incident)),
        Fact("responses", f"{names_words(incident.rids)} ← {names_words(incident.donors)}"),
        Fact("seen", seen_words(incident)),
        Fact("growing", growing_words(own, incident)),
        Fact("next", next_words(own.path, incident)),
    )


def verdict_words(incident: Incident) -> str:
    """`2 responses contaminated, 3 exposed`."""
    counts = incident.counts
    parts: list[str] = []
    for verdict in Verdict:
        if counts[verdict]:
            parts.append(f"{counts[verdict]:,}" if parts else counted(counts[verdict], "response"))
            parts[-1] += f" {verdict}"
    return ", ".join(parts) or "no response of it read anything that was not its own"


def detector_words(incident: Incident) -> str:
    """`D1, D2: 8 detections`; without one, the record alone shows it."""
    if not incident.detections:
        return "none: the record alone shows it"
    return f"{', '.join(incident.detectors)}: {counted(incident.detections, 'detection')}"


def tenant_words(known: Rollup, incident: Incident) -> str:
    """`a t-acme → b t-brio`: whose content, in whose responses."""

    def named(tenants: tuple[str, ...]) -> str:
        return " ".join(f"{known.owners.of(t).letter} {printable(t)}" for t in tenants) or "?"

    return f"{named(incident.donor_tenants)} → {named(incident.reader_tenants)}"


def names_words(rids: tuple[str, ...], most: int = 2) -> str:
    """`resp-1, resp-2 and 153 more`; of requests whose names are not known, a question mark."""
    more = f" and {len(rids) - most:,} more" if len(rids) > most else ""
    return (", ".join(printable(rid) for rid in rids[:most]) or "?") + more


def seen_words(incident: Incident) -> str:
    """When, in UTC."""
    if incident.first_seen_us is None:
        return "not known when"
    lasted = incident.lasted_us
    return f"first {moment(incident.first_seen_us)}" + (f", last {duration(lasted)} later" if lasted else "")


def growing_words(known: Rollup, incident: Incident) -> str:
    """Whether it goes on."""
    if not known.writing:
        return "no: all writers of this ledger have ended"
    return "yes: the last of it is less than 10 minutes old" if incident.growing else "not in the last 10 minutes"


def next_words(ledger: Path, incident: Incident) -> str:
    """The next command to run."""
    runbook = mechanism(incident.cause).runbook
    if runbook:
        return f"runbook run {runbook} --engine RUN_DIR/engine.json"
    if incident.worst is Verdict.UNKNOWN:
        return f"forensics gaps --ledger {shlex.quote(str(ledger))}"
    asked = "foreign-reads" if incident.worst is not Verdict.CLEAN else "detections"
    return f"forensics query {asked} --ledger {shlex.quote(str(ledger))}"


def reading_words(reading: Reading, total_pages: int | None = None) -> str:
    """`contaminated (proved), 7 of 19 pages, first step 12`."""
    parts = [f"{reading.verdict} ({reading.proof}{', derived' if reading.derived else ''})"]
    if reading.pages:
        whole = f" of {total_pages}" if total_pages else ""
        parts.append(f"{reading.pages}{whole} page{'s' * (reading.pages > 1 or bool(total_pages))}")
    if reading.first_step is not None:
        last = reading.first_step_last
        step = f"{reading.first_step}" if last in (None, reading.first_step) else f"{reading.first_step}–{last}"
        parts.append(f"first step {step} ({reading.first_step_proof or reading.proof}) at {clock(reading.seen_us)}")
    return ", ".join(parts)
