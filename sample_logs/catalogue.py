"""The samples, and what of their answers follows from how they were made instead of from what was read.

Invariant: what stands here was decided when a scenario was written. Who read whose pages is not among it: that is
taken from physical truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
MOST_BYTES = 10_000_000
"""All samples together."""


@dataclass(frozen=True)
class Sample:
    """One folder. `mechanism`: the class that its scenario plays, None where none is.

    `exposed` and `unknown`: rid -> why its verdict can be no other. `deleted`: segments taken from the sealed ledger.
    """

    name: str
    mechanism: str | None = None
    exposed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    large: bool = False  # too large to be remade or judged by every run of the tests

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return HERE / self.name

    @property
    def ledger(self) -> Path:
        """Its ledger."""
        return self.folder / "ledger"

    @property
    def scenario(self) -> Path:
        """What is played."""
        return self.folder / "scenario.yaml"

    @property
    def expected(self) -> Path:
        """What is to be found."""
        return self.folder / "expected.json"


GAPPY = {
    "rows-lost": "decode-0 lost its rows of pages while this request lived",
    "reads-through-a": "pages that it grew into are among the rows that decode-0 lost",
    "killed": "decode-1 died while it decoded; the last 200 ms of its record are gone",
    "segment-lost": "prefill-1's pages rows of that day are gone",
    "segment-lost-too": "prefill-1's pages rows of that day are gone",
}

SAMPLES: tuple[Sample, ...] = (
    Sample("glm53-155", "M1", large=True),
    Sample(
        "abort-race",
        "M3",
        exposed={"near-posted": "foreign bytes were handed over and landed between its reserve and its own bytes"},
    ),
    Sample("abort-storm"),
    Sample("healthy"),
    Sample("gappy", unknown=GAPPY, deleted=("pages/day=2026-09-15/worker=prefill-1",)),
    Sample("prefix-cross-tenant", "M12"),
    Sample("classes/m01-short-handoff", "M1"),
    Sample("classes/m02-fail-open", "M2"),
    Sample("classes/m03-late-write", "M3"),
    Sample("classes/m04-early-ack", "M4"),
    Sample("classes/m04-lost-ack", "M4"),
    Sample("classes/m05-source-reuse", "M5"),
    Sample("classes/m06-early-post", "M6"),
    Sample("classes/m07-early-free", "M7"),
    Sample("classes/m08-double-free", "M8"),
    Sample("classes/m09-leak"),
    Sample("classes/m10-slow-drain"),
    Sample("classes/m11-room-collision", "M11"),
    Sample("classes/m12-incomplete-key", "M12"),
    Sample("classes/m13-shifted-pages", "M13"),
    Sample("classes/m14-partial-state", "M14"),
    Sample("classes/p0-shared-scope"),
)


def named(names: tuple[str, ...]) -> list[Sample]:
    """The samples of some names; all where there are none. Raises KeyError for one that is not known."""
    known = {sample.name: sample for sample in SAMPLES}
    return [known[name] for name in names or known]
