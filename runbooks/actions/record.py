"""Reading a ledger: what its responses read, how whole it is, and how much of each pool is held.

Invariant: a ledger that cannot be read or judged leaves the step undecided; nothing here is a pass for want of rows.
"""

# ruff: noqa: PLC0415  the SQL engine waits until it is needed, so that listing runbooks stays quick
from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.errors import LedgerError
from engine.ledger.reader import Ledger, read_ledger
from forensics.rows import rows_of
from forensics.verdict import Verdict
from runbooks.actions.engine import NoInput
from runbooks.actions.registry import Action, ActionContext, ActionModel, Effect
from runbooks.errors import StepUndecided

NO_LEDGER = "no ledger was named; give --ledger DIR"
MOST_SENTENCES = 20
LOOK_BACK_US = 900_000_000


class Verdicts(ActionModel):
    """Responses by verdict, by both engines of `forensics`."""

    contaminated: int
    corrupt: int
    unknown: int
    exposed: int
    clean: int


class Condition(ActionModel):
    """`broken`, `problems`: sentences, 20 at most; `gaps`: stretches of lost rows; `dead`: workers that died."""

    broken: list[str]
    problems: list[str]
    gaps: int
    dead: list[str]


class PoolHeld(ActionModel):
    """One pool when most of it was kept; `share` of all its pages, null where its size is not known."""

    worker: str
    pool: str
    held: int
    quarantined: int
    share: float | None


class Held(ActionModel):
    """`largest_share` is null where any pool's is, and where there is no gauge at all."""

    pools: list[PoolHeld]
    largest_share: float | None


def verdicts(_: NoInput, context: ActionContext) -> Verdicts:
    """Judge every response of the ledger."""
    from forensics.foreign_reads import EnginesDisagree, foreign_reads

    ledger = _read(context)
    try:
        counts = foreign_reads(ledger).counts
    except EnginesDisagree as error:
        raise StepUndecided(f"the two engines disagree, no verdict of this ledger can be trusted: {error}") from error
    if not sum(counts.values()):
        raise StepUndecided("the ledger has no response to judge")
    return Verdicts(**{verdict.value: counts[verdict] for verdict in Verdict})


def condition(_: NoInput, context: ActionContext) -> Condition:
    """Say how whole the record is."""
    ledger = _read(context)
    said = {
        severe: [f"{p.kind}: {p.what}" for p in ledger.problems if (p.severity == "broken") is severe]
        for severe in (True, False)
    }
    return Condition(
        broken=said[True][:MOST_SENTENCES],
        problems=said[False][:MOST_SENTENCES],
        gaps=sum(gap.before_seq is not None for gap in ledger.gaps),
        dead=sorted({writer.worker for writer in ledger.writers if writer.state == "dead"}),
    )


def held(_: NoInput, context: ActionContext) -> Held:
    """The most that was held of every pool in the last quarter of an hour of its gauges, against its size."""
    ledger = _read(context)
    gauges = ledger.tables["gauges"].select(["worker", "pool", "t", "held", "quarantined"])
    sizes, most = _pool_pages(ledger.tables["workers"]), dict[tuple[str, str], PoolHeld]()
    if gauges.num_rows:
        since = pc.subtract(pc.max(gauges["t"].cast(pa.int64())), LOOK_BACK_US)
        gauges = gauges.filter(pc.greater_equal(gauges["t"].cast(pa.int64()), since))
    for row in rows_of(gauges):
        key, kept = (row["worker"], row["pool"]), (row["held"] or 0, row["quarantined"] or 0)
        if key not in most or sum(kept) > most[key].held + most[key].quarantined:
            share = sum(kept) / sizes[key] if sizes.get(key) else None
            most[key] = PoolHeld(worker=key[0], pool=key[1], held=kept[0], quarantined=kept[1], share=share)
    shares = [pool.share for pool in most.values() if pool.share is not None]
    known = bool(shares) and len(shares) == len(most)
    return Held(pools=[most[key] for key in sorted(most)], largest_share=max(shares) if known else None)


def _pool_pages(workers: pa.Table) -> dict[tuple[str, str], int]:
    configs = workers.filter(pc.equal(workers["op"], "config")).group_by(["worker", "pool"])
    return {(r["worker"], r["pool"]): r["pool_pages_max"] for r in rows_of(configs.aggregate([("pool_pages", "max")]))}


def _read(context: ActionContext) -> Ledger:
    if context.ledger is None:
        raise StepUndecided(NO_LEDGER)
    try:
        return read_ledger(context.ledger)
    except LedgerError as error:
        raise StepUndecided(str(error)) from error


VERDICTS = Action("record.verdicts", Effect.OBSERVE, NoInput, Verdicts, verdicts)
CONDITION = Action("record.condition", Effect.OBSERVE, NoInput, Condition, condition)
HELD = Action("record.held", Effect.OBSERVE, NoInput, Held, held)
