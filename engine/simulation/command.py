"""`engine simulate`: a scenario file in, a ledger out."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

USAGE_ERROR, FAILURE = 64, 1


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--ledger", type=click.Path(path_type=Path), required=True, help="New directory for the ledger.")
@click.option("--seed", type=click.IntRange(0), help="Another seed than the scenario's own.")
def simulate(scenario: Path, ledger: Path, seed: int | None) -> None:
    """Play SCENARIO (see docs/scenarios.md) in virtual time and write its ledger."""
    from engine.simulation.fault_plan import KNOWN  # noqa: PLC0415  --help is quick
    from engine.simulation.scenario import load_scenario  # noqa: PLC0415
    from engine.simulation.scenario_source import ScenarioError  # noqa: PLC0415
    from engine.simulation.simulate import simulate as play  # noqa: PLC0415

    try:
        loaded = load_scenario(scenario, KNOWN)
    except (ScenarioError, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE_ERROR)
    if seed is not None:
        loaded = loaded.model_copy(update={"seed": seed})
    begun = time.monotonic()
    shows = sys.stderr.isatty()

    def progress(share: float) -> None:
        if shows:
            left = (time.monotonic() - begun) * (1 - share) / share
            click.echo(f"\r{share:4.0%}, {left:.0f} s left ", nl=False, err=True)

    try:
        outcome = play(loaded, ledger, progress)
    except FileExistsError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE_ERROR)
    if shows:
        click.echo("\r", nl=False, err=True)
    answers = ", ".join(f"{count} x {status}" for status, count in outcome.answers.items()) or "no request"
    took = time.monotonic() - begun
    click.echo(
        f"{loaded.name}: {outcome.seconds:,.0f} s played in {took:.1f} s; {answers}; ledger in {ledger}", err=True
    )
