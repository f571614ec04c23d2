"""The proof of one response's verdict: the query `proof`, led in by the verdict itself.

Invariant: a response that the ledger does not know is an error, never an empty proof.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.ledger.reader import read_ledger
from forensics.ask import Asked, ask
from forensics.catalogue import load_queries
from forensics.progress import Tell, silent
from forensics.results import EXIT_BROKEN, EXIT_FOUND, EXIT_OK, EXIT_UNKNOWN, Result
from forensics.rows import Row, rows_of
from forensics.verdict import Verdict

QUERY = "proof"
_CODES = {Verdict.CONTAMINATED: EXIT_FOUND, Verdict.CORRUPT: EXIT_FOUND, Verdict.UNKNOWN: EXIT_UNKNOWN}


class NoResponse(ValueError):
    """No response of that name is in the ledger."""


def explain(rid: str, path: Path, asked: Asked, tell: Tell = silent) -> Result:
    """The chain of events behind the verdict of `rid`. Raises NoResponse, LedgerError, EnginesDisagree."""
    tell("reading the ledger")
    evidence = read_ledger(path, counted=partial(tell, "reading the ledger"))
    reads = asked.judge(evidence, tell)
    known = {row["rid"]: row for row in rows_of(reads.responses)}
    if rid not in known:
        raise NoResponse(
            f"{path}: no response {rid!r}; `forensics query foreign-reads --all` lists those that are there"
        )
    query = next(query for query in load_queries() if query.name == QUERY)
    result = ask(query, path, replace(asked, given={"rid": rid}), tell=tell, read=evidence, judged=reads)
    response = known[rid]
    code = _CODES.get(Verdict(response["verdict"]), EXIT_OK)
    return replace(
        result, words=[_words(response), *result.words[1:]], exit_code=code if result.exit_code != EXIT_BROKEN else EXIT_BROKEN,
        envelope=result.envelope | {"response": {name: response[name] for name in ("rid", "verdict", "proof", "mechanism", "donors")}},
    )  # fmt: skip


def _words(response: Row) -> str:
    """The verdict in one line."""
    told = [f"{response['rid']} is {response['verdict']} ({response['proof']})"]
    if response["mechanism"]:
        told.append(f"by {response['mechanism']}")
    if response["donors"]:
        told.append(f"content of {', '.join(response['donors'])} in {response['pages']} pages")
    if response["first_step"] is not None:
        first, last = response["first_step"], response["first_step_last"] or response["first_step"]
        told.append(
            f"from step {first}"
            + (f" to {last} at the latest" if last > first else "")
            + f" of {response['first_worker']} on"
        )
    if response["reason"]:
        told.append(response["reason"])
    return ", ".join(told)
