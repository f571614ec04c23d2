"""`forensics bound`: how many responses may have been exposed, where nobody recorded pages.

Invariant: a bound is no verdict. `least` counts what cannot be otherwise, `most` what the rules cannot rule out; what no
log can show is said with every result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from forensics.ask import Asked, ask
from forensics.catalogue import Query
from forensics.results import EXIT_BROKEN, EXIT_OK, EXIT_UNKNOWN, Result

NAME = "bound"
LEAST, UNFILLED, POSSIBLE = "least", "unfilled", "possible"


@dataclass(frozen=True)
class Rule:
    """A rule of the query: what it means, and what it does not see."""

    name: str
    means: str
    blind: str


RULES = (
    Rule(
        "over-limit",
        "the prompt is longer than prefill can take, and a token left all the same",
        "a prompt whose real length no log holds, and a limit that no log or /server_info gives",
    ),
    Rule(
        "placeholder",
        "prefill worked on 1 token where the side that answered had more",
        "a prefill whose end was not logged (--log-requests or --enable-request-time-stats-logging)",
    ),
    Rule(
        "lengths-differ",
        "the two sides of one room worked on different lengths",
        "sides that agree on a wrong length, and handoffs whose two sides share neither room nor rid in the logs",
    ),
    Rule(
        "short-transfer",
        "prefill counted fewer bytes than the length needs",
        "pages in the right number and with the wrong content, and a total that the engine did not measure",
    ),
    Rule(
        "after-timeout",
        "decode released pages by a timer while a write might be in flight; whoever held pages from then on is possible",
        "aborts before the destination was published, engines that do not defer a release, and releases that are not logged",
    ),
    Rule(
        "alarm",
        "a check of the engine's own failed for it (checksum, page count, metadata of another room, a lease that had ended)",
        "checks that are off, and those whose lines name no request (page counts of SGLang's prefill, the canary)",
    ),
    Rule(
        "unseen",
        "nothing at all is known of prefill's side, so that no rule can rule it out",
        "responses of which no log tells anything: they are in no count here",
    ),
)
NEVER_SEEN = (
    "no log shows which page was whose: pages freed while read, double owners, early reads, reuse under an incomplete key, "
    "wrong geometry and partial state leave no line, so that `most` bounds only what these rules look for"
)


def bound(query: Query, path: Path, asked: Asked) -> Result:
    """The rows of the query and what they bound. Raises what `ask` raises."""
    result = ask(query, path, asked)
    counts, words = told(result.rows)
    broken = result.exit_code == EXIT_BROKEN
    code = EXIT_BROKEN if broken else EXIT_UNKNOWN if counts["most"] else EXIT_OK
    return replace(result, words=words + result.words[1:], exit_code=code, envelope=result.envelope | {"bound": counts})


def told(rows: pa.Table) -> tuple[dict[str, Any], list[str]]:
    """The counts, and the words for them: totals, then every rule with what it does not see."""
    by_bound = Counter(rows["bound"].to_pylist())
    by_rule = Counter(name for rules in rows["rules"].to_pylist() for name in rules.split())
    unfilled = by_bound[LEAST] + by_bound[UNFILLED]
    counts = {"least": by_bound[LEAST], "unfilled": unfilled, "most": rows.num_rows, "rules": _in_order(by_rule)}
    words = [
        f"bound, no verdict: at least {by_bound[LEAST]}, at most {rows.num_rows} responses read another request's text",
        f"{unfilled} of them read pages that their handoff had not filled, and a token left; whose text those held, logs do not say",
    ]
    for rule in RULES:
        words.append(f"{rule.name}: {by_rule[rule.name]}; {rule.means}. It does not see {rule.blind}")
    return counts, [*words, NEVER_SEEN]


def _in_order(by_rule: Mapping[str, int]) -> dict[str, int]:
    return {rule.name: by_rule.get(rule.name, 0) for rule in RULES}
