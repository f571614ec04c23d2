"""Remakes the samples from their scenarios: `python sample_logs/remake.py [NAME ...]`, or `make samples`.

Invariant: the same scenarios give the same bytes; a sample is replaced only by one that was made to its end.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from answers import answer, leaked_pages
from catalogue import HERE, MOST_BYTES, SAMPLES, Sample, named

from engine.ledger.manifest import read_manifest
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import load_scenario
from engine.simulation.simulate import simulate


def remake(sample: Sample, ledger: Path) -> dict[str, Any]:
    """Play a sample into the new directory `ledger`; returns its `expected.json`."""
    scenario = load_scenario(sample.scenario, KNOWN)
    leaked: dict[str, int] = {}
    simulate(scenario, ledger, at_end=lambda fleet: leaked.update(leaked_pages(fleet)))
    expected = answer(sample, scenario, ledger / "truth", leaked)
    shutil.rmtree(ledger / "truth")
    for name in sample.deleted:
        shutil.rmtree(ledger / name)
    expected["manifest_roots"] = {
        path.stem: read_manifest(path).root for path in sorted(ledger.glob("manifest/*.jsonl"))
    }
    streams = ledger / "wal"
    if not any(streams.iterdir()):  # every worker has closed; a dead one's stream is evidence
        streams.rmdir()
    return expected


def written(expected: dict[str, Any]) -> str:
    """`expected.json` as text, one line for each contaminated response."""
    contaminated = ",\n    ".join(json.dumps(one) for one in expected["contaminated"])
    texts = {name: json.dumps(value) for name, value in expected.items()}
    if contaminated:
        texts["contaminated"] = f"[\n    {contaminated}\n  ]"
    return "{\n" + ",\n".join(f'  "{name}": {text}' for name, text in texts.items()) + "\n}\n"


def size_of(place: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def main(names: tuple[str, ...]) -> None:
    """Remake the samples of these names (none: all) in their folders."""
    try:
        samples = named(names)
    except KeyError as error:
        sys.exit(f"no sample is called {error}; see sample_logs/README.md")
    for sample in samples:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=HERE, prefix=".remaking-") as place:
            made = Path(place) / "ledger"
            expected = remake(sample, made)
            if sample.ledger.exists():
                shutil.rmtree(sample.ledger)
            made.rename(sample.ledger)
        sample.expected.write_text(written(expected))
        took = time.monotonic() - begun
        print(f"{sample.name}: {size_of(sample.folder):,} bytes in {took:.1f} s; {expected['counts']}", file=sys.stderr)
    together = sum(size_of(sample.folder) for sample in SAMPLES)
    if together > MOST_BYTES:
        sys.exit(f"the samples are {together:,} bytes, more than {MOST_BYTES:,}: shorten one")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
