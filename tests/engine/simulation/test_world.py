"""Virtual time: order, naps, calls, work that is deaf, and ends."""

import pytest

from engine.simulation.clock import VirtualClock
from engine.simulation.world import Task, World


def test_actions_happen_in_order_of_time_and_then_of_planning():
    world, seen = World(100), []
    for when, name in ((120, "c"), (110, "a"), (110, "b"), (90, "now")):
        world.at(when, lambda name=name: seen.append((world.now, name)))
    world.run(115)
    assert seen == [(100, "now"), (110, "a"), (110, "b")]
    assert world.now == 115
    world.run(200)
    assert seen[-1] == (120, "c")


def test_a_task_naps_until_its_time_or_until_it_is_called():
    world, seen = World(0), []

    def body():
        seen.append((world.now, task.wait(50)))
        seen.append((world.now, task.wait(100)))
        seen.append((world.now, task.wait(200)))

    task = Task(world, "t", body)
    world.at(70, task.call)
    world.run(1000)
    assert seen == [(0, False), (50, True), (70, False)] or seen == [(0, False), (50, True), (70, False)]
    assert task.ended


def test_a_call_during_work_is_heard_afterwards():
    world, seen = World(0), []

    def body():
        task.work(100)
        seen.append(world.now)
        seen.append(task.wait(500))
        seen.append(world.now)

    task = Task(world, "t", body)
    world.at(30, task.call)
    world.run(1000)
    assert seen == [100, True, 100]


def test_two_tasks_take_turns():
    world, seen = World(0), []

    def body(name, pace):
        for _ in range(3):
            tasks[name].work(world.now + pace)
            seen.append((world.now, name))

    tasks = {
        name: Task(world, name, lambda name=name, pace=pace: body(name, pace)) for name, pace in (("a", 10), ("b", 15))
    }
    world.run(100)
    assert seen == [(10, "a"), (15, "b"), (20, "a"), (30, "b"), (30, "a"), (45, "b")]


def test_a_killed_task_never_goes_on():
    world, seen = World(0), []

    def body():
        try:
            task.work(100)
            seen.append("went on")
        finally:
            seen.append("ended")

    task = Task(world, "t", body)
    world.at(50, task.kill)
    world.run(1000)
    assert seen == ["ended"]
    assert task.ended


def test_what_a_task_raises_stops_the_world():
    world = World(0)

    def body():
        raise ValueError("a fault of the control plane")

    Task(world, "t", body)
    with pytest.raises(ValueError, match="control plane"):
        world.run(10)


def test_clocks_drift_and_are_turned_back_into_true_time():
    world = World(1_000_000)
    clock = VirtualClock(world, offset_us=-500, drift_ppm=-100)
    world.run(11_000_000)
    assert clock.now_us() == 11_000_000 - 500 - 1_000
    for local in (clock.now_us(), clock.now_us() + 12_345):
        true = clock.true_us(local)
        world.run(true)
        assert clock.now_us() >= local
    clock.jump(7_000)
    assert clock.now_us() >= local + 7_000 - 1
