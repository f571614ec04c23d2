"""The hooks against the published wheels of SGLang: every name is there, and takes what its handler reads."""

import inspect
import sys
import types

import pytest
import sglang_stand_in
from wheel_signatures import PAGE, VERSIONS, NoWheels, page, parameters, wheels

from engine.adapters.attaching import attach
from engine.adapters.sglang_hooks import HOOKS
from engine.adapters.sglang_plugin import ranks_of
from engine.adapters.sglang_recorder import SglangRecorder
from engine.adapters.sglang_settings import Settings
from engine.ledger.reader import read_ledger

pytestmark = pytest.mark.wheels


@pytest.fixture(scope="module")
def found():
    try:
        return wheels()
    except NoWheels as why:
        pytest.skip(f"SGLang's wheels are not to be had here: {why}")


def at_least(version, since):
    return [int(part) for part in version.split(".")] >= [int(part) for part in since.split(".")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.path)
def test_a_hook_fits_every_version_that_it_is_said_to_fit(found, version, hook):
    taken = parameters(found[version], hook)
    if not at_least(version, hook.since):
        assert taken is None
        return
    assert taken is not None and set(hook.needs) <= set(taken)


def test_the_stand_ins_have_the_newest_signatures(found):
    engine = sglang_stand_in.StandIn()
    for hook in HOOKS:
        if hook.backend != "nixl":
            ours = list(inspect.signature(engine.resolve(hook.target)).parameters)
            assert ours == parameters(found["0.5.23"], hook), hook.path


@pytest.mark.parametrize("version", VERSIONS)
def test_the_guard_is_called_as_the_registry_of_that_version_calls(found, version, tmp_path, monkeypatch):
    """The registry's module needs nothing of SGLang: it is run as it is, on the stand-ins."""
    registry = types.ModuleType(f"registry_{version.replace('.', '_')}")
    source = found[version].read("sglang/srt/plugins/hook_registry.py")
    exec(compile(source, "hook_registry.py", "exec"), registry.__dict__)
    engine, home = sglang_stand_in.StandIn(), types.ModuleType(f"engine_{version.replace('.', '_')}")
    for name, part in engine.parts.items():
        setattr(home, name, part)
    monkeypatch.setitem(sys.modules, home.__name__, home)

    def place(target, handler, kind):
        *_, owner, name = target.split(".")
        inside = f"{home.__name__}.{owner}.{name}" if owner in engine.parts else f"{home.__name__}.{name}"
        registry.HookRegistry.register(inside, handler, registry.HookType[kind])

    recorder = SglangRecorder(Settings(tmp_path, "", 0, b""), ranks_of)
    attach(HOOKS, recorder, engine.resolve, place)
    registry.HookRegistry.apply_hooks()
    home.Scheduler({"mode": "prefill", "pool": 640}, None)
    req = home.Req("r", 7, 300)
    req.set_finish_with_abort("too long", status_code=400)
    home.PrefillBootstrapQueue().add(req, 8)
    home.MooncakeKVManager().add_transfer_request(7, sglang_stand_in.pages(3), slice(0, 1), True)
    assert home.CommonKVManager().conclude_transfer(bootstrap_room=7, status=4) == 4
    recorder.close()
    ledger = read_ledger(tmp_path)
    assert recorder.failures == 0
    assert [row["op"] for row in ledger.tables["transfers"].to_pylist()] == ["post", "done"]
    rejected = [row for row in ledger.tables["requests"].to_pylist() if row["op"] == "reject"]
    assert [row["prompt_tokens"] for row in rejected] == [300]


def test_the_page_is_what_the_wheels_say(found):
    assert PAGE.read_text(encoding="utf-8") == page(found)
