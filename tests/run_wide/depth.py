"""How deep tests go whose cases are many: a drawn part in every run, all in one asked to be thorough (`make thorough`)."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("KVWITNESS_THOROUGH"))
