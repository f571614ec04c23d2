"""Every scene of every fault class, by name."""

from __future__ import annotations

import scenes_cache
import scenes_handoff
import scenes_identity
import scenes_passes
import scenes_reuse
from fault_scenes import Scenes

_MODULES = (scenes_handoff, scenes_reuse, scenes_cache, scenes_identity, scenes_passes)
SCENES: Scenes = {name: one for module in _MODULES for name, one in module.SCENES.items()}
assert len(SCENES) == sum(len(module.SCENES) for module in _MODULES)
