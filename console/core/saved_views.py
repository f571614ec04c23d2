"""Views that were saved under a name, in one TOML file that terminal and browser share.

Invariant: a saved view is an address; one that this console cannot open is named with its fault and hides no other.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from console.core.ledger_names import ALL_LEDGERS
from console.core.places import MERGED
from console.core.view import View
from console.core.view_link import BadLink, from_link, to_link

_NAME = re.compile(r"[\w.-]{1,40}")
DEFAULT = "default"
"""The view of this name is opened first."""


class SavedViewError(Exception):
    """The file of views cannot be read or written, or a name is none: why, and what to do."""


@dataclass(frozen=True)
class SavedViews:
    """`views` by name; `faults`: by name, why an address cannot be opened."""

    views: Mapping[str, View]
    faults: Mapping[str, str]


def load_views(path: Path) -> SavedViews:
    """What is in the file; nothing where there is none. Raises SavedViewError."""
    views: dict[str, View] = {}
    faults: dict[str, str] = {}
    for name, link in _links(path).items():
        try:
            views[name] = from_link(link)
        except BadLink as error:
            faults[name] = str(error)
    return SavedViews(views, faults)


def of_ledger(view: View, ledger: str | None) -> View:
    """A view that names no ledger, of the one that is looked at, if that has its screen."""
    has_it = ledger != ALL_LEDGERS or view.place in MERGED
    return replace(view, ledger=ledger) if view.ledger is None and has_it else view


def saved_links(path: Path, ledger: str | None) -> dict[str, str]:
    """The addresses of the views that can be opened, by name, in the ledger that is looked at; none where the file cannot be
    read."""
    try:
        return {name: to_link(of_ledger(view, ledger)) for name, view in sorted(load_views(path).views.items())}
    except SavedViewError:
        return {}


def save_view(path: Path, name: str, view: View) -> None:
    """Save a view; one of that name is replaced. Raises SavedViewError."""
    if not _NAME.fullmatch(name):
        raise SavedViewError(f"{name!r} is no name for a view; use letters, digits, dots, dashes, 40 at most")
    links = _links(path) | {name: to_link(view)}
    # A string of JSON is one of TOML, but for the escape of what lies beyond 16 bits.
    lines = ["# Views of the console, by name: addresses as `y` copies them.", "[views]"]
    lines += [f"{json.dumps(key, ensure_ascii=False)} = {json.dumps(link)}" for key, link in sorted(links.items())]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(lines) + "\n")
        Path(temporary).replace(path)
    except OSError as error:
        raise SavedViewError(f"{path}: {error.strerror}; the view could not be saved") from error


def _links(path: Path) -> dict[str, str]:
    try:
        found = tomllib.loads(path.read_text()).get("views", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SavedViewError(f"{path}: {error}; correct it, or move it away") from error
    if not isinstance(found, dict) or not all(isinstance(link, str) for link in found.values()):
        raise SavedViewError(f'{path}: [views] holds name = "address" lines only; correct it')
    return found


def views_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's views are, by the XDG rules."""
    given = environment.get("XDG_CONFIG_HOME", "")
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME", "/nonexistent")) / ".config"
    return base / "kvwitness" / "views.toml"
