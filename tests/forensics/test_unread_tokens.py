"""A response of which no read is known is clean only where its record says that no token left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_surgery import responses
from site_ledger import START_US, Site


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        ({"status": "200", "last_token": START_US}, "unknown"),
        ({"status": "200", "last_token": START_US, "output_tokens": 0}, "unknown"),
        ({"status": "200"}, "unknown"),
        ({}, "unknown"),
        ({"status": "200", "output_tokens": 0}, "clean"),
        ({"status": "499"}, "clean"),
    ],
)
@pytest.mark.parametrize("worker", ["gateway-0", "decode-0"])
def test_tokens_that_nobody_counted_may_have_left(
    tmp_path: Path, worker: str, end: dict[str, Any], verdict: str
) -> None:
    site = Site(tmp_path / "ledger", worker)
    req = site[worker].receive("asked")
    site[worker].rec.record("requests", "finish", req=req, page_rows=0, **end)
    _, found = responses(site.close(), "both")
    assert (found["asked"]["verdict"], found["asked"]["reason"]) == (
        verdict,
        "no record of its reads" if verdict == "unknown" else "",
    )
