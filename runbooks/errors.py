"""Errors of the runbook room, each with the exit code it ends a command with.

Invariant: every message says what is wrong, where, and what to do; none carries prompt text, answers or keys.
"""

from __future__ import annotations


class RunbookError(Exception):
    """A runbook command cannot go on. `exit_code` is the process's exit status."""

    exit_code = 64


class UsageError(RunbookError):
    """The caller gave something that cannot be used: a wrong id, parameter or file."""

    exit_code = 64


class EvidenceBroken(RunbookError):
    """The audit chain or the stored run state contradicts itself."""

    exit_code = 3


class RunBusy(RunbookError):
    """Another process is running this runbook against this target."""

    exit_code = 2


class StepUndecided(Exception):
    """An action could not find out what it was asked; the step ends as undecided (fail closed)."""
