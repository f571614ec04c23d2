"""The console as lines of plain words, one fact a line: for screen readers, pipes and tickets.

Invariant: no box characters, no colour; everything from the ledger has been through `printable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from console.core.incident_words import facts, reading_words
from console.core.incidents import Incident
from console.core.lineage import lineage
from console.core.looking import Looking, left_of
from console.core.overview import stood_of
from console.core.page_events import page_story
from console.core.prefill_rank import prefill_rank
from console.core.printable import counted, printable, ranges
from console.core.readings import Reading
from console.core.snapshot import Snapshot
from console.core.standing_rows import with_standing
from console.core.standing_words import silence_words, standing_facts
from console.core.times import clock_ms, moment
from console.core.triage import Entry, silences, standing
from forensics.verdict import Verdict


def incident_list(snapshot: Snapshot, at: Looking, entries: Iterable[Entry], clock_us: int) -> Iterator[str]:
    """The Incidents screen, as the view's range, filter and sort leave it."""
    state = "live" if snapshot.writing else "finished"
    yield f"ledger {printable(snapshot.name)}, {state}, last row {moment(snapshot.data_us)}, {snapshot.record_words}"
    by_verdict = ", ".join(f"{snapshot.counts[verdict]} {verdict}" for verdict in Verdict)
    total = counted(snapshot.reads.responses.num_rows, "response")
    yield f"{total}: {by_verdict}; {snapshot.judging} not judged yet"
    for problem in snapshot.ledger.problems:
        words = f"{problem.severity}: {printable(problem.where)}: {printable(problem.what)} ({problem.remedy})"
        yield f"problem, {words}"
    now_us, said = at.view.moment_us(clock_us), tuple(entries)
    known = with_standing(snapshot.rollup, said, now_us)
    left = left_of(known, "incidents", at)
    yield f"incidents: {left.words}"
    for silence in silences(snapshot.incidents, said, now_us):
        yield f"silence of {silence_words(silence, now_us)}"
    for stood in stood_of(known, left, said, now_us):
        yield ""
        yield from _facts(snapshot, stood.incident, said, now_us)


def incident_detail(snapshot: Snapshot, incident: Incident, entries: Iterable[Entry], now_us: int) -> Iterator[str]:
    """The Incident screen, every response of it. `now_us`: as in `standing`."""
    yield from _facts(snapshot, incident, entries, now_us)
    for reading in snapshot.readings(incident):
        known = lineage(snapshot, reading)
        yield ""
        judged = reading_words(reading, known.total)
        yield f"response {printable(reading.rid)}, tenant {printable(reading.tenant)}, {judged}"
        rank = prefill_rank(snapshot, reading.rid)
        if rank is not None:
            yield rank.words
        for donor in known.donors:
            pages = [page.page for page in known.pages if any(link.donor == donor.rid for link in page.links)]
            styles = sorted({link.style.value for p in known.pages for link in p.links if link.donor == donor.rid})
            whose = f"{printable(donor.rid)}, tenant {printable(donor.tenant)}"
            yield f"pages {ranges(pages)} from {whose}, {', '.join(styles)}"
        if reading.reason:
            yield f"reason: {printable(reading.reason)}"
        if known.found:
            yield from _story(snapshot, reading, known.found[0])


def _facts(snapshot: Snapshot, incident: Incident, entries: Iterable[Entry], now_us: int) -> Iterator[str]:
    yield f"incident {incident.id}, severity {incident.severity.name}, {incident.title}"
    stands = standing(incident, entries, now_us)
    for fact in (*facts(snapshot.rollup, incident), *standing_facts(stands, now_us)):
        yield f"{fact.label}: {fact.words}"


def _story(snapshot: Snapshot, reading: Reading, page: int) -> Iterator[str]:
    yield f"order of events on page {page} of {printable(reading.worker)}, UTC:"
    for event in page_story(snapshot, reading, page).events:
        here = " LOOK HERE" if event.offending else ""
        said = f" {event.verdict}" if event.verdict else ""
        where = f"{clock_ms(event.t_us)} {printable(event.worker)} seq {event.seq}"
        yield f"{where} {event.kind} {printable(event.rid)}: {printable(event.note)}{said}{here}"
