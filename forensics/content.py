"""What was written where: content events on page ranges, the lives of tags, and shares.

Invariant: an event is placed by seq and edges alone; its times are bounds in the clock of the worker whose page
it changed, or None. A claim (receipt, ack, status) makes no event.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from engine.ledger.tag import split_tag
from forensics.order import INF, NOTHING, Order
from forensics.rows import Row, WorkerKey, WorkerRows, spans

PageKey = tuple[WorkerKey, str, int]
"""(worker epoch, pool, page)."""


@dataclass(frozen=True)
class Source:
    """Where a landing's bytes came from, and the window (lo, hi] of the source worker's seq in which they were read."""

    page: PageKey
    lo: int
    hi: int
    tag: int


@dataclass(frozen=True)
class ContentEvent:
    """One change of content on [tok_lo, tok_hi) of one page, somewhere in (lo, hi] of its worker's seq."""

    page: PageKey
    kind: str
    tok_lo: int
    tok_hi: int
    lo: int
    hi: int
    t_lo: int | None = None
    t_hi: int | None = None
    req: int | None = None
    tag: int | None = None
    part: int | None = None
    mover: WorkerKey | None = None
    post_seq: int | None = None
    done_seq: int | None = None
    stream: str | None = None
    source: Source | None = None
    reason: str | None = None


@dataclass
class Life:
    """One life of a page under a tag: (reserve_seq, end_seq], ended by a free or by the next reserve."""

    page: PageKey
    tag: int
    req: int | None
    reserve_seq: int
    end_seq: int = INF
    held: bool = False


def tag_lives(workers: dict[WorkerKey, WorkerRows]) -> dict[tuple[int, PageKey], Life]:
    """Lives by (tag, page). A tag whose reserve row is lost is known from the rows that name it; its owner from its writes."""
    lives: dict[tuple[int, PageKey], Life] = {}
    for key, worker in workers.items():
        current: dict[PageKey, Life] = {}
        for row in worker.pages:
            if row["pages"] is None:
                continue
            for number in row["pages"]:
                page = (key, row["pool"], number)
                if row["op"] in ("reserve", "append"):
                    _end(current.get(page), row["seq"])
                    current[page] = lives[row["tag"], page] = Life(page, row["tag"], row["req"], row["seq"])
                elif row["op"] == "free":
                    _end(current.pop(page, None), row["seq"])
                elif row["tag"] is not None:
                    life = lives.get((row["tag"], page))
                    if life is None and _is_of(row["tag"], worker):
                        life = Life(page, row["tag"], None, split_tag(row["tag"]).seq)
                        _end(current.get(page), life.reserve_seq)
                        current[page] = lives[row["tag"], page] = life
                    if life is not None:
                        _note(life, row)
    return lives


def _end(life: Life | None, seq: int) -> None:
    if life is not None:
        life.end_seq = min(life.end_seq, seq)


def _note(life: Life, row: Row) -> None:
    if row["op"] == "hold":
        life.held = True
    elif row["op"] == "write" and life.req is None:
        life.req = row["req"]


def _is_of(tag: int, worker: WorkerRows) -> bool:
    parts = split_tag(tag)
    return parts.epoch == worker.key[1] and (worker.ordinal is None or parts.ordinal == worker.ordinal)


def local_events(worker: WorkerRows) -> list[ContentEvent]:
    """Events of the worker's own `write` and `scrub` rows. Writes of appended pages are growth, made elsewhere."""
    times = {row["seq"]: row["t"] for row in (*worker.pages, *worker.transfers, *worker.requests, *worker.steps)}
    appended = {row["tag"] for row in worker.pages if row["op"] == "append"}
    events: list[ContentEvent] = []
    for row in worker.pages:
        if row["op"] not in ("write", "scrub") or row["pages"] is None:
            continue
        if row["op"] == "write" and row["tag"] in appended:
            continue
        since = row["since_seq"] if row["since_seq"] is not None else row["seq"] - 1
        t_lo = row["t"] if row["since_seq"] is None else times.get(since)
        page_tokens = worker.page_tokens.get(row["pool"], 0)
        for span in spans(row["pages"], row["tok_off"], row["tokens"], page_tokens):
            events.append(
                ContentEvent(
                    (worker.key, row["pool"], span.page), row["op"], span.tok_lo, span.tok_hi, since, row["seq"],
                    t_lo, row["t"], row["req"], row["tag"], _part(row), stream=row["stream"],
                )
            )  # fmt: skip
    return events


def _part(row: Row) -> int | None:
    """The part a row wrote; None = all parts."""
    return (row["part"] or 0) if (row["parts"] or 1) > 1 else None


@dataclass(frozen=True)
class _Ends:
    """Both ends of one transfer row, as worker epochs."""

    mover: WorkerKey
    source: WorkerKey
    target: WorkerKey


def landings(workers: dict[WorkerKey, WorkerRows], order: Order) -> list[ContentEvent]:
    """Events of transfers: `done` lands somewhere in (post, done]; what may have landed without one is a ghost."""
    by_place = {(w.ordinal, key[1]): key for key, w in workers.items() if w.ordinal is not None}
    events: list[ContentEvent] = []
    for key, worker in workers.items():
        posts: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
        for row in worker.transfers:
            batch = (row["xfer"], row["chunk"] or 0, row["part"] or 0)
            if row["op"] == "post":
                posts[batch].append(row)
            elif row["op"] in ("done", "fail"):
                post = posts[batch].pop(0) if posts[batch] else None
                events += _batch_events(key, post, row, workers, order, by_place)
        for batch_posts in posts.values():
            for post in batch_posts:
                events += _batch_events(key, post, None, workers, order, by_place)
    return events


def _batch_events(
    mover: WorkerKey,
    post: Row | None,
    end: Row | None,
    workers: dict[WorkerKey, WorkerRows],
    order: Order,
    by_place: dict[tuple[int, int], WorkerKey],
) -> list[ContentEvent]:
    row = end or post
    if row is None or (end is not None and end["op"] == "fail" and end["bytes"] == 0):
        return []
    lists = row if row["dst_pages"] is not None else (post or row)
    if lists["dst_pages"] is None:
        return []
    ends = _ends_of(mover, lists, by_place)
    target = workers.get(ends.target)
    if target is None:
        return []
    post_seq, done_seq = post["seq"] if post else None, end["seq"] if end else None
    lo, hi = _window(mover, ends.target, post_seq, done_seq, order)
    src_lo, src_hi = _window(mover, ends.source, post_seq, done_seq, order)
    t_lo = _bound(order, post, mover, ends.target, 0)
    t_hi = _bound(order, end, mover, ends.target, 1)
    certain = end is not None and end["op"] == "done"
    reason = None if certain else ("failed transfer, bytes unknown" if end else "transfer posted, outcome not known")
    page_tokens = target.page_tokens.get(lists["dst_pool"], 0)
    events = []
    for span in spans(lists["dst_pages"], lists["tok_off"], lists["tokens"], page_tokens):
        source = None
        if (
            certain
            and lists["src_pages"] is not None
            and ends.source in workers
            and span.index < len(lists["src_pages"])
        ):
            page = (ends.source, lists["src_pool"], lists["src_pages"][span.index])
            source = Source(page, src_lo, src_hi, lists["src_tag"] or 0)
        events.append(
            ContentEvent(
                (ends.target, lists["dst_pool"], span.page), "landing" if certain else "ghost", span.tok_lo, span.tok_hi,
                lo, hi, t_lo if certain else None, t_hi if certain else None, None, lists["dst_tag"], _part(lists),
                mover, post_seq, done_seq, None, source, reason,
            )
        )  # fmt: skip
    return events


def _ends_of(mover: WorkerKey, row: Row, by_place: dict[tuple[int, int], WorkerKey]) -> _Ends:
    """Source and target of a row: the mover is the source in push, the target in pull."""
    far_tag = row["src_tag"] if row["dir"] == "pull" else row["dst_tag"]
    far = (row["peer"], mover[1])
    if row["peer"] == mover[0]:
        far = mover
    elif far_tag:
        parts = split_tag(far_tag)
        far = by_place.get((parts.ordinal, parts.epoch), (row["peer"], parts.epoch))
        far = far if far[0] == row["peer"] else (row["peer"], parts.epoch)
    return _Ends(mover, far, mover) if row["dir"] == "pull" else _Ends(mover, mover, far)


def _window(mover: WorkerKey, at: WorkerKey, post: int | None, done: int | None, order: Order) -> tuple[int, int]:
    """(lo, hi] in the seq of worker `at` between a batch's post and its done on the mover."""
    if at == mover:
        return (post if post is not None else NOTHING), (done if done is not None else INF)
    lo = order.known(at, mover, post) if post is not None else NOTHING
    hi = order.after(mover, done, at) if done is not None else INF
    return lo, hi


def _bound(order: Order, row: Row | None, mover: WorkerKey, target: WorkerKey, side: int) -> int | None:
    bounds = order.convert(row["t"], mover, target) if row is not None else None
    return None if bounds is None else bounds[side]


def proved_by_checks(worker: WorkerRows, events: list[ContentEvent]) -> list[ContentEvent]:
    """Landings on a worker's pages, placed by its failed tag checks.

    A failed tag check proves that the page held `found` at its `step`, and the same request's checks of earlier
    steps, which held, prove that it did not yet: the landing stands right before that pass.
    """
    runs = {row["step"]: row for row in worker.steps}
    first: dict[tuple[str, int, int], tuple[int, int]] = {}
    for row in worker.checks:
        run = runs.get(row["step"])
        if row["op"] != "mismatch" or row["page"] is None or run is None or run["n"] != 1 or run["since_seq"] is None:
            continue
        at = (row["pool"], row["page"], row["found"])
        bound = max((b["seq"] for b in worker.pages if b["op"] == "bind" and b["req"] == row["req"]), default=INF)
        held = max(
            (s["seq"] for s in worker.steps if bound <= s["since_seq"] and s["seq"] <= run["since_seq"]),
            default=NOTHING,
        )
        first.setdefault(at, (held, run["since_seq"]))
    placed = []
    for event in events:
        found = first.get((event.page[1], event.page[2], event.tag or 0)) if event.page[0] == worker.key else None
        if event.kind == "landing" and found is not None and event.lo <= found[1] and event.hi > found[0]:
            placed.append(replace(event, lo=max(event.lo, found[0]), hi=min(event.hi, found[1])))
        else:
            placed.append(event)
    return placed


@dataclass(frozen=True)
class Share:
    """A lock of `tag`'s page by `req`, from `seq` to `end_seq`."""

    page: PageKey
    tag: int
    req: int
    seq: int
    end_seq: int


def shares(worker: WorkerRows) -> list[Share]:
    """Every share row, one per page, closed by the same request's unshare."""
    open_shares: dict[tuple[PageKey, int], tuple[int, int]] = {}
    closed: list[Share] = []
    for row in worker.pages:
        if row["op"] not in ("share", "unshare") or row["pages"] is None:
            continue
        for number in row["pages"]:
            at = ((worker.key, row["pool"], number), row["req"])
            if row["op"] == "share":
                open_shares.setdefault(at, (row["tag"], row["seq"]))
            elif at in open_shares:
                tag, seq = open_shares.pop(at)
                closed.append(Share(at[0], tag, at[1], seq, row["seq"]))
    closed += [Share(page, tag, req, seq, INF) for (page, req), (tag, seq) in open_shares.items()]
    return closed
