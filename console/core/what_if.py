"""What is tried out on the Held screen, as it is written and as an address keeps it.

Invariant: what cannot be read is refused; a view holds only what can be.
"""

from __future__ import annotations

import math

from console.core.held_capacity import WhatIf
from console.core.view import View

OPTION_OF = {"rate": "what_if.rate", "hold": "what_if.t_hold", "pages": "what_if.pages"}
_USAGE = "write rate=2 (times as many), hold=120 (seconds each), pages=50 (of each); nothing = as measured"


class WhatIfError(ValueError):
    """What is tried out cannot be read: why, and how it is written."""


def with_what_if_of(view: View, text: str) -> View:
    """The view with what `text` tries out, and nothing else. Raises WhatIfError."""
    tried: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or name not in OPTION_OF:
            raise WhatIfError(f"cannot read {word!r}; {_USAGE}")
        _number(name, value)
        tried[name] = value
    for name, option in OPTION_OF.items():
        view = view.with_option(option, tried.get(name))
    return view


def what_if_of(view: View) -> WhatIf:
    """What a view tries out. Raises WhatIfError where its address holds something else than numbers."""
    given = {name: view.option(option) for name, option in OPTION_OF.items()}
    read = {name: _number(name, value) for name, value in given.items() if value is not None}
    return WhatIf(read.get("rate", 1.0), read.get("hold"), read.get("pages"))


def what_if_words(view: View) -> str:
    """As `with_what_if_of` reads it; empty = nothing is tried out."""
    given = {name: view.option(option) for name, option in OPTION_OF.items()}
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise WhatIfError(f"{name} is {text!r}; {_USAGE}") from error
    if not math.isfinite(value) or value < 0:
        raise WhatIfError(f"{name} is {text!r}; it has to be 0 or more")
    return value
