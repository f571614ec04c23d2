"""Errors of the web console that the command line reports."""


class ServeError(Exception):
    """The console cannot be served as asked: what is wrong and what to do."""
