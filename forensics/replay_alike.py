"""Reads that are alike, many at a time: of pages on which one owner's write, or nothing, lay since before the reader had them.

Invariant: nothing is decided here. Reads are put together only where every number that the judge of single reads asks for
is the same, but for the page, its place in tables and when before the reader's time its content came; so what it finds of
one holds for each. Where it finds anything else than that one write, each is judged by itself.
"""

from __future__ import annotations

import numpy as np

from forensics.ranking import distinct, ranked
from forensics.replay_facts import Facts, Ints
from forensics.replay_findings import Found, Judge, Judgement
from forensics.replay_ordinary import Mask, Timeline, sole_sources
from forensics.replay_records import NONE, READ_INTS
from forensics.verdict import Kind, Proof

NOBODY = -2
OF_THE_PAGE = frozenset({"read", "cell", "pos", "req_lo", "req_hi"})
"""Columns of a read that its judgement does not rest on where another owner's write lay on the page."""


def judged(facts: Facts, timeline: Timeline, judge: Judge, closer: Mask) -> list[Judgement]:
    """The judgements of the reads in `closer`, of which those that are alike are judged once."""
    where = np.flatnonzero(closer)
    group = _alike(facts, timeline, where)
    _, first, of = np.unique(group, return_index=True, return_inverse=True)
    facts.remember_lives(facts.reads["tag"][where[first]], facts.page_of_cell[facts.reads["cell"][where[first]]])
    of_first = [judge.judge(x) for x in facts.select_reads(where[first])]
    others = np.ones(len(where), bool)
    others[first] = False
    found = list(of_first)
    alone: list[int] = []
    pages = facts.page_of_cell[facts.reads["cell"][where]]
    for at in np.flatnonzero(others).tolist():
        one = of_first[of[at]]
        if _is_plain(one):
            found.append(one._replace(found=[one.found[0]._replace(page=int(pages[at]))]))
        else:
            alone.append(at)
    return found + [judge.judge(x) for x in facts.select_reads(where[alone])] if alone else found


def _is_plain(one: Judgement) -> bool:
    """Certainly somebody else's or nobody's, and nothing besides."""
    found: list[Found] = one.found
    return (
        len(found) == 1
        and found[0].kind in (Kind.FOREIGN, Kind.CORRUPT)
        and found[0].proof is Proof.PROVED
        and not one.borrowed
    )


def _alike(facts: Facts, timeline: Timeline, where: Ints) -> Ints:
    """A number for each of these reads; those that are alike have the same."""
    group = np.arange(len(where))
    if not len(where) or not len(facts.kinds):
        return group
    reads, events = {name: facts.reads[name][where] for name in READ_INTS}, facts.events
    none = np.full(len(where), NONE, np.int64)
    met = timeline.sole(reads["cell"], reads["s0"], reads["s1_max"], none, none)
    page = facts.page_of_cell[reads["cell"]]
    reserve, _ = facts.spans(reads["tag"], page)
    writer = _writer(facts, timeline, met)
    plain = (
        (met != NONE)
        & (reads["growth"] == NONE)
        & (writer != NONE)
        & (reads["owner"] != NONE)
        & (writer != reads["owner"])
    )
    plain &= (events["tag"][met] != reads["tag"]) & (events["hi"][met] <= np.minimum(reads["s0"], reserve))
    plain &= ~_own_filled(facts, reads["cell"], reads["tag"]) & ~_takes(facts, reads["owner"])
    plain &= ~np.isin(reads["rq"], _in_several_pools(facts))
    columns = [reads[name] for name in READ_INTS if name not in OF_THE_PAGE]
    columns += [writer, facts.kinds[met], facts.page_pool[page], *facts.life_numbers(reads["tag"], page)]
    at = np.flatnonzero(plain)
    number = np.zeros(len(at), np.int64)
    for column in columns:
        values, rank = ranked(column[at].astype(np.int64))
        _, number = ranked(number * len(values) + rank)
    group[at] = len(where) + number
    return group


def _writer(facts: Facts, timeline: Timeline, met: Ints) -> Ints:
    """Who wrote what was met, here or where its transfer took it from; NOBODY where nobody had; NONE where that is not known
    of one write."""
    events = facts.events
    is_sound = (met != NONE) & (facts.flaws[met] == NONE)
    writer = np.where(is_sound & facts.is_written[met], events["owner"][met], NONE)
    writer[(met != NONE) & facts.is_kind("unwritten", "scrub")[met]] = NOBODY
    landed = np.flatnonzero(is_sound & facts.is_kind("landing")[met] & (events["src_tag"][met] != NONE))
    source = sole_sources(facts, timeline, met[landed])
    is_known = (source != NONE) & facts.is_written[source]
    writer[landed] = np.where(is_known, events["owner"][source], NONE)
    return writer


def _own_filled(facts: Facts, cell: Ints, tag: Ints) -> Mask:
    """Whether anything came to the cell under the reader's own tag."""
    filling = np.flatnonzero(facts.is_filling)
    known, rank = ranked(np.concatenate([facts.events["tag"][filling], tag]))
    of_filling, of_reads = np.split(rank, [len(filling)])
    keys = facts.events["cell"][filling] * len(known) + of_filling
    return np.isin(cell * len(known) + of_reads, keys)


def _takes(facts: Facts, owner: Ints) -> Mask:
    """Whether the reader, or somebody of whom nobody knows who it was, took anything from a cache."""
    takers = facts.takers
    return np.full(len(owner), True) if NONE in takers else np.isin(owner, takers)


def _in_several_pools(facts: Facts) -> Ints:
    """Requests that read pages of more than one pool."""
    width = len(facts.pools) + 1
    pool = facts.page_pool[facts.page_of_cell[facts.reads["cell"]]]
    rq = distinct(facts.reads["rq"] * width + pool) // width
    return rq[1:][rq[1:] == rq[:-1]]
