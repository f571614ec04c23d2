"""Every screen as lines of plain words, one fact a line; how incidents are told stands in `plain`.

Invariant: a line says what its screen says, of the same view; no box characters, no colour, everything printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from console.core.looking import Looking, left_of
from console.core.overview import overview
from console.core.page_tables import marks_of
from console.core.page_view import pool_fault, pool_looked_at, rows_area
from console.core.places import Place
from console.core.plain import incident_detail, incident_list
from console.core.printable import counted, printable
from console.core.ranged import in_range
from console.core.rollup import Rollup
from console.core.run_list import STEP_MARKS, RunList, next_words, outcome, run_words
from console.core.sheet import shown
from console.core.snapshot import Snapshot
from console.core.standing_rows import with_standing
from console.core.times import duration, moment
from console.core.triage import Entry
from console.core.what_if import what_if_of, what_if_words
from forensics.rows import rows_of


def plain_overview(known: Rollup, at: Looking, entries: Iterable[Entry], clock_us: int) -> Iterator[str]:
    """Open incidents, detectors, the fullest pool, the worst length."""
    figure = overview(known, at, entries, clock_us)
    yield f"incidents: {figure.left.words}; open: {len(figure.incidents)}; they concern {counted(figure.concerned, 'response')}"
    if figure.whole:
        yield f"detectors, pool and prefill are {figure.whole}"
    for stood in figure.incidents:
        i = stood.incident
        counts = ", ".join(f"{n} {verdict}" for verdict, n in i.counts.items() if n) or "no response"
        yield f"open incident {i.id}, severity {i.severity.name}, {i.title}, {counts}, {stood.standing.state}"
    for d in figure.detectors:
        looked = "not counted" if d.looked is None else f"{d.looked:,}"
        yield f"detector {d.code}, {d.words}: {d.hits:,} hits, looked: {looked}, {d.state}"
    if figure.held is not None:
        yield f"fullest pool {printable(figure.held.worker)}/{printable(figure.held.pool)}: {figure.held.forecast.words}"
    if figure.latency is not None:
        yield f"prefill of {figure.latency.label} tokens: p5 {figure.latency.p5_ms:,.1f} ms"


def plain_held(known: Rollup, at: Looking) -> Iterator[str]:
    """Pools, then holders."""
    tried = what_if_words(at.view)
    if tried:
        yield f"what if: {tried}; not as measured"
    for f in known.held_if(what_if_of(at.view)):
        held = f.held or 0.0
        of = "not known" if f.limit is None else f"{f.limit:,}"
        yield f"pool {printable(f.worker)}/{printable(f.pool)}: {held:,.0f} pages held of {of}"
        if f.stats is not None:
            yield f"held in this stretch: {f.stats.words('pages')}"
        yield f"steady state: {f.formula}, room for {f.forecast.room:,}"
        yield f"forecast: {f.forecast.words}"
    left = left_of(known, "holders", at)
    yield f"holders: {left.words}"
    for row in rows_of(left.rows):
        late = ", overdue" if row["overdue"] == "yes" else ""
        yield (
            f"holder {printable(row['rid'])}, tenant {printable(row['tenant'])}, {counted(row['pages'], 'page')}, "
            f"for {duration(round(row['age_s'] * 1e6))}, {printable(row['why'])}, deadline {moment(row['deadline'])}{late}, "
            f"peer {printable(row['peer'])}, drain ack {row['ack'] or 'unknown'}"
        )


def plain_latency(known: Rollup, at: Looking) -> Iterator[str]:
    """Lengths."""
    left = left_of(known, "latency", at)
    kept = set(left.rows["bucket_tokens"].to_pylist())
    yield f"lengths: {left.words}"
    for n in known.latency.lengths:
        if n.bucket_tokens not in kept:
            continue
        change = "too few to compare" if n.few else "no baseline" if n.change is None else f"{n.change:+.0%}"
        state = ", suspicious" if n.suspicious else ""
        base = "none" if n.baseline_p5_ms is None else f"{n.baseline_p5_ms:,.1f} ms"
        yield (
            f"{n.label} tokens, {counted(n.requests, 'request')}: p5 {n.p5_ms:,.1f} ms, baseline {base}, {change}, "
            f"floor {n.floor_ms:,.1f} ms, below it {n.below_floor}{state}"
        )
        if n.stats is not None:
            yield f"{n.label} tokens in this stretch: {n.stats.words('ms')}"


def plain_events(known: Rollup, at: Looking) -> Iterator[str]:
    """The latest events."""
    left = left_of(known, "events", at)
    yield f"events: {left.words}"
    for row in rows_of(left.rows):
        who = f"{printable(row['worker'])} epoch {row['epoch']} seq {row['seq']}"
        yield f"{moment(row['t'])} {who} {row['op']} {printable(row['rid'])}: {printable(row['says'])}"


def plain_pages(snapshot: Snapshot, at: Looking) -> Iterator[str]:
    """Foreign reads and late writes of the view's pool, or of every one, in its range and pages, as its filter leaves them."""
    fault = pool_fault(snapshot, at.view)
    if fault:
        yield f"left out: {fault}"
    named = at.view.pool is not None and not fault
    found = pool_looked_at(snapshot, at.view) if named else None
    for key, pool in [found] if found is not None else snapshot.pools:
        left = shown(marks_of(snapshot, rows_area(snapshot, key, pool, at.view)), at.view, at.span, at.now_us)
        yield f"pool {printable(key[0])} epoch {key[1]} {printable(pool)}, marks: {left.words}"
        for row in rows_of(left.rows):
            whose = f"{printable(row['rid'])}, of {printable(row['donor_rid'])}, incident {row['incident'] or 'none'}"
            yield f"{row['what']}, {moment(row['t'])}, page {row['page']}, {whose}: {printable(row['says'])}"


def plain_runs(listed: RunList) -> Iterator[str]:
    """Runbooks, runs with their steps, what each waits for, and whether the audit log is whole."""
    if listed.problem:
        yield f"the runs cannot be read: {printable(listed.problem)}"
        return
    if listed.moment_words:
        yield printable(listed.moment_words)
    for book in listed.runbooks:
        yield f"runbook {book.head.id} {book.head.version}, severity {book.head.severity}, {printable(book.head.title)}"
    for run in listed.runs:
        yield f"run {printable(run.run_id)} of {printable(run.runbook)}, started {moment(run.started_us)}, {run_words(run)}"
        waits = next_words(run, listed.runbook(run.runbook))
        if waits:
            yield f"waits for: {printable(waits)}"
        for step in run.steps:
            yield f"step {printable(step.step_id)}, {step.phase}, {STEP_MARKS[step.state][1]}: {printable(outcome(step))}"
    if listed.more:
        yield f"and {counted(listed.more, 'earlier run')}"
    yield printable(listed.audit)


_OF_ROLLUP: dict[Place, Callable[[Rollup, Looking], Iterator[str]]] = {
    Place.HELD: plain_held, Place.LATENCY: plain_latency, Place.EVENTS: plain_events,
}  # fmt: skip


def plain_screen(snapshot: Snapshot, at: Looking, entries: Iterable[Entry], clock_us: int) -> Iterator[str]:
    """The lines of the view's screen, what its range or filter is wrong about first."""
    if at.fault:
        yield f"left out: {at.fault}"
    if at.now_words:
        yield f"range {at.view.range.text}, {at.now_words}"
    entries = tuple(entries)
    known = with_standing(snapshot.rollup, entries, at.view.moment_us(clock_us))
    counted = in_range(at.view.place, known, snapshot, at)
    if at.view.place is Place.OVERVIEW:
        yield from plain_overview(counted, at, entries, clock_us)
    elif at.view.place is Place.PAGES:
        yield from plain_pages(snapshot, at)
    elif at.view.place is Place.INCIDENTS:
        yield from incident_list(snapshot, at, entries, clock_us)
    elif at.view.place is Place.INCIDENT:
        incident = snapshot.incident(at.view.incident)
        assert incident is not None  # the command refuses one that is not there
        yield from incident_detail(snapshot, incident, entries, at.view.moment_us(clock_us))
    else:
        yield from _OF_ROLLUP[at.view.place](counted, at)
