"""Scenes with known verdicts: scripted ledgers by name, and what each response of one must come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from site_ledger import Handoff, Site

from engine.ledger.reader import Ledger

Expected = dict[str, tuple[str, str]]
"""rid -> (verdict, mechanism)."""


class Scene(NamedTuple):
    """`build` scripts the site; `shape` are arguments of `Site`."""

    build: Callable[[Site], None]
    expected: Expected
    shape: dict[str, Any]

    def ledger(self, directory: Path) -> Ledger:
        """Play it."""
        site = Site(directory, *self.shape.get("names", ()), **{k: v for k, v in self.shape.items() if k != "names"})
        self.build(site)
        return site.close()


Scenes = dict[str, Scene]


def scene(
    scenes: Scenes, name: str, shape: dict[str, Any] | None = None, **expected: tuple[str, str]
) -> Callable[..., Any]:
    """Register a scene under `name`; the keywords are rids."""

    def keep(build: Callable[[Site], None]) -> Callable[[Site], None]:
        assert name not in scenes, name
        scenes[name] = Scene(build, expected, shape or {})
        return build

    return keep


def prior(site: Site, rid: str = "donor", pages: int = 4, first: int = 1, pools: tuple[str, ...] = ("kv",)) -> Handoff:
    """A request that goes as it should, and leaves its content behind on pages [first, first + pages) of both sides."""
    numbers = list(range(first, first + pages))
    return Handoff(site, rid, dict.fromkeys(pools, numbers), dict.fromkeys(pools, numbers), tenant=f"t-{rid}").through()


def begun(site: Site, rid: str = "victim", pages: int = 4, first: int = 1, sources: int | None = None, at: int = 11,
          pools: tuple[str, ...] = ("kv",), **columns: Any) -> Handoff:  # fmt: skip
    """A request up to the end of its prefill: granted and computed, nothing sent."""
    there = list(range(at, at + (pages if sources is None else sources)))
    here = list(range(first, first + pages))
    asked = Handoff(
        site, rid, dict.fromkeys(pools, here), dict.fromkeys(pools, there), **{"tenant": f"t-{rid}"} | columns
    )
    asked.grant()
    asked.compute()
    return asked


def goes_on(asked: Handoff, steps: int = 3) -> None:
    """The handoff is drained and committed, whatever was sent; the request decodes and ends."""
    asked.ack()
    asked.free_source()
    asked.commit()
    for _ in range(steps):
        asked.dst.run()
    asked.finish(steps)
