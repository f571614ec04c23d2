"""Every action that a runbook step may call, by name."""

from __future__ import annotations

from runbooks.actions.engine import CHECK_LIMITS, READ_POOLS
from runbooks.actions.manual import CONFIRM
from runbooks.actions.probe import PROBE_BOUNDARY
from runbooks.actions.record import CONDITION, HELD, VERDICTS
from runbooks.actions.registry import Action

ACTIONS: dict[str, Action] = {
    action.name: action for action in (READ_POOLS, CHECK_LIMITS, PROBE_BOUNDARY, CONFIRM, VERDICTS, CONDITION, HELD)
}
