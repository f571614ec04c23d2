"""What ledgers that are open together are called.

Invariant: no two have one name, and none is `ALL_LEDGERS`; a name is the directory's own, with as many of its parents before it as
tell it apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ALL_LEDGERS = "all"
"""Not one ledger: all of them at once."""


def ledger_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each of `paths`, in their order; the same directory twice has the same name twice."""
    parts = [path.resolve().parts for path in paths]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(own[-n:]) for own, n in zip(parts, lengths, strict=True)]
        times = Counter(names)
        longer = [
            min(n + 1, len(own)) if times[name] > 1 or name == ALL_LEDGERS else n
            for own, n, name in zip(parts, lengths, names, strict=True)
        ]
        if longer == lengths:
            return tuple(names)
        lengths = longer
