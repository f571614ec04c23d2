"""Errors of notifications that the command line reports."""


class NotifyError(Exception):
    """The receivers, or the outbox, cannot be used: what is wrong and what to do."""
