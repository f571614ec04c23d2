"""What becomes of an engine whose children end by themselves."""

import pytest

from engine.supervisor import LONGEST_PAUSE, SHORT_LIFE, Supervisor

NAMES = ("prefill-0", "decode-0", "gateway-0")


class Engine:
    """Children that end when they are told to, at times that the test sets."""

    def __init__(self):
        self.children, self.codes, self.started, self.now = dict.fromkeys(NAMES), {}, [], 1000.0

    def ended(self):
        return dict(self.codes)

    def start(self, name):
        del self.codes[name]
        self.started.append((name, self.now))


@pytest.fixture
def engine():
    return Engine()


def supervisor(engine, restart):
    said = []
    made = Supervisor(engine, restart, said.append, lambda: engine.now)
    made.said = said
    return made


def test_a_worker_that_ends_is_said_once_and_the_engine_goes_on(engine):
    watching = supervisor(engine, restart=False)
    assert watching.look() is None
    engine.codes["decode-0"] = -9
    assert [watching.look() for _ in range(3)] == [None] * 3
    assert watching.said == ["decode-0 ended with exit code -9; the engine goes on without it"]
    assert engine.started == []


def test_without_its_gateway_the_engine_ends(engine):
    engine.codes["gateway-0"] = 1
    assert supervisor(engine, restart=False).look() == "gateway-0 ended with exit code 1; its messages are above"


@pytest.mark.parametrize("name", NAMES)
def test_with_restart_whoever_lived_long_is_started_again_at_once(engine, name):
    watching = supervisor(engine, restart=True)
    engine.now += SHORT_LIFE
    engine.codes[name] = -9
    assert watching.look() is None
    assert engine.started == [(name, engine.now)]
    assert watching.said == [f"{name} ended with exit code -9; it is started again"]


def test_who_ends_again_and_again_waits_longer_each_time(engine):
    watching = supervisor(engine, restart=True)
    waits = []
    for _ in range(9):
        engine.codes["decode-0"] = 1
        ended = engine.now
        while len(engine.started) == len(waits):
            watching.look()
            engine.now += 0.125
        waits.append(engine.started[-1][1] - ended)
    assert waits == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert len(watching.said) == 9
    engine.now += SHORT_LIFE
    engine.codes["decode-0"] = 1
    watching.look()
    assert engine.started[-1] == ("decode-0", engine.now)  # it had come to itself
