"""Driving the terminal console in tests: an app over a ledger, and waiting for conditions, never for times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_ledger import ACME, Scene, ordinary
from textual.pilot import Pilot

import console.core.source as source_module
from console.core.places import Place
from console.core.rollup_store import RollupStore
from console.core.source import LedgerSource
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.app_base import Surroundings
from console.tui.background import BackgroundScreen

NOW_US = 1_790_000_060_000_000
SIZES = [(80, 24), (160, 48)]
DEADLINE_SECONDS = 30


async def until(pilot: Pilot, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        await pilot.pause(0.02)
    await pilot.pause()


async def opened(pilot: Pilot, app: ConsoleApp) -> None:
    """Wait for the first reading."""
    await until(pilot, lambda: app.desk.shown is not None or app.desk.failure is not None, "the first reading")


async def worked_out(pilot: Pilot) -> None:
    """Wait until the top screen is one that has drawn all that it computes beside the event loop."""
    await until(pilot, lambda: isinstance(pilot.app.screen, BackgroundScreen), "the screen")
    await until(pilot, lambda: not pilot.app.screen.is_computing, "what it computes")


async def typed(pilot: Pilot, text: str) -> None:
    """Write a text, key by key."""
    await pilot.press(*("space" if c == " " else c for c in text))


def toasts(app: ConsoleApp) -> str:
    """The messages that are shown, each as it was said: on the screen a path's length decides where they wrap."""
    return "\n".join(each.message for each in app._notifications)


def around(directory: Path, environment: dict[str, str] | None = None) -> Surroundings:
    """Everything that the console keeps, in one directory."""
    exports = directory / "exports"
    exports.mkdir(parents=True, exist_ok=True)
    return Surroundings(directory / "state", directory / "views.toml", exports, "kl", environment or {})


def app_of(
    path: Path,
    kept: Path,
    *,
    view: View | None = None,
    now_us: int = NOW_US,
    store: RollupStore | None = None,
    others: Sequence[Path] = (),
    environment: dict[str, str] | None = None,
    theme: str | None = None,
) -> ConsoleApp:
    """A console over a ledger, on the Incidents screen unless `view` says otherwise."""

    def source(ledger: Path) -> LedgerSource:
        return LedgerSource(ledger, now_us=lambda: now_us, steady_s=lambda: 0.0, engine="replay", store=store)

    return ConsoleApp(
        source(path), view or View(place=Place.INCIDENTS), around=around(kept, environment), theme=theme,
        others=[source(other) for other in others],
    )  # fmt: skip


def may_write(app: ConsoleApp) -> None:
    """As if it had been opened with --write."""
    app.around = replace(app.around, runs=replace(app.around.runs, may_start=True))


def place_of(state: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Scene | None]:
    """The ledger of a state that a screen is drawn in: `empty`, `none` (found), else `here`, which `failed` cannot judge and
    `loading` never reads; and who still writes it, who lives as long as he is kept."""
    if state == "failed":
        monkeypatch.setattr(source_module, "foreign_reads", lambda *_, **__: 1 / 0)
    elif state == "loading":
        monkeypatch.setattr(LedgerSource, "read_if_changed", lambda _: None)
    if state not in ("empty", "none"):
        return here, None
    monkeypatch.chdir(tmp_path)
    path = Path("new-ledger" if state == "empty" else "clean-ledger")
    scene = Scene(path)
    if state == "empty":
        scene.flush()
    else:
        ordinary(scene, "fine", ACME, 1, 4)
        scene.close()
    return path, scene
