"""Crash dumps: what is on the allow-list, and that nothing else is even looked up."""

import io
import os
import pickle
import sys
import types
from dataclasses import dataclass, field

import pytest
from reading import AT_US, KEYED, said

from engine.adapters.crash_dump import load_dump, read_dump
from engine.adapters.notes import Notes


@pytest.fixture
def request_class(monkeypatch):
    """A class that pickles as SGLang's own would."""
    name = "sglang.srt.managers.io_struct"
    module = types.ModuleType(name)

    @dataclass
    class GenerateReqInput:
        rid: str = "r-1"
        bootstrap_room: int = 77
        text: str = "a secret prompt"
        sampling_params: dict = field(default_factory=dict)

    GenerateReqInput.__module__, GenerateReqInput.__qualname__ = name, "GenerateReqInput"
    module.GenerateReqInput = GenerateReqInput
    for part in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    monkeypatch.setitem(sys.modules, name, module)
    return GenerateReqInput


def test_requests_of_a_dump(request_class):
    out = {"meta_info": {"finish_reason": {"type": "stop"}, "prompt_tokens": 40, "completion_tokens": 8}}
    dump = pickle.dumps(
        {"server_args": {"x": 1}, "launch_command": "x", "requests": [
            (request_class(), out, 1789387204.0, 1789387205.0), (request_class(rid="r-2"), {}, 1789387205.0, 0.0), 7,
        ]}
    )  # fmt: skip
    notes = Notes()
    rows = list(read_dump(dump, "crash.pkl", KEYED, notes))
    assert [said(row)[:4] for row in rows] == [
        ("requests", "receive", "r-1", 77), ("requests", "finish", "r-1", 77), ("requests", "receive", "r-2", 77),
    ]  # fmt: skip
    assert [row.t_us for row in rows] == [AT_US - 1_000_000, AT_US, AT_US]
    assert "secret" not in repr(rows)
    assert [skip.where for skip in notes.skips] == ["crash.pkl request 2"]


class _Evil:
    def __reduce__(self):
        return os.system, ("echo evil > evil",)


@pytest.mark.parametrize(
    "evil",
    [_Evil(), {"requests": [(_Evil(),)]}, print, types.SimpleNamespace(), io.BytesIO(b"x")],
    ids=["code", "code inside", "a function", "a namespace", "a stream"],
)
def test_anything_else_is_refused_by_name_and_never_called(evil, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notes = Notes()
    assert list(read_dump(pickle.dumps(evil), "crash.pkl", KEYED, notes)) == []
    assert "is not on the allow-list" in notes.skips[0].why
    assert not (tmp_path / "evil").exists()


def test_the_refusal_names_what_was_asked_for():
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system"):
        load_dump(pickle.dumps(_Evil()))


@pytest.mark.parametrize("data", [b"", b"rubbish", pickle.dumps({"requests": []})[:-3], b"\x80\x05P1\n."])
def test_bytes_that_are_no_pickle_are_told(data):
    notes = Notes()
    assert list(read_dump(data, "crash.pkl", KEYED, notes)) == []
    assert sum(notes.skipped.values()) == 1
