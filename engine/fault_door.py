"""The routes by which an operator switches the faults of one process; all need the hop credential.

Invariant: a body is applied whole or not at all.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from engine.fault_table import parameters
from engine.faults import Faults

HopCheck = Callable[[HttpRequest], None]
Switches = dict[str, StrictBool | dict[str, StrictInt | StrictStr]]
"""Fault -> on or off, or its parameters, which switch it on."""


class LateWriteBody(BaseModel):
    """`POST /faults/late-write`: gate the writes of the next `arm` handoffs, or let all gated ones go."""

    arm: int = Field(default=0, ge=0)
    release: bool = False


def hop_check(hop_key: str) -> HopCheck:
    """A check that a caller knows the hop credential; it raises HTTPException where not."""

    def check(request: HttpRequest) -> None:
        given = request.headers.get("x-kvwitness-hop", "").encode()
        if not hmac.compare_digest(given, hop_key.encode()):
            raise HTTPException(401, "this door is for the gateway: the hop credential is missing or wrong")

    return check


def switch_routes(app: FastAPI, faults: Faults, check_hop: HopCheck) -> None:
    """`GET` and `POST /faults`."""

    @app.get("/faults")
    async def state(request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        return fault_state(faults)

    @app.post("/faults")
    async def switch(body: Switches, request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        problem = next(filter(None, (_problem(faults, name, wanted) for name, wanted in body.items())), None)
        if problem is not None:
            raise HTTPException(400, problem)
        for name, wanted in body.items():
            if isinstance(wanted, dict):
                for parameter, value in wanted.items():
                    setattr(faults.named(name), parameter, value)
            faults.switch(name, wanted is not False)
        return fault_state(faults)


def gate_route(app: FastAPI, faults: Faults, check_hop: HopCheck, release_writes: Callable[[], None]) -> None:
    """`POST /faults/late-write`: the gate that any fault of a worker can be tried with."""

    @app.post("/faults/late-write")
    async def late_write(body: LateWriteBody, request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        if body.arm and not faults.active():
            raise HTTPException(400, "no fault is on: switch one on first with POST /faults")
        faults.late_write.armed += body.arm
        if body.release:
            faults.late_write.armed = 0
            release_writes()
        return fault_state(faults)


def fault_state(faults: Faults) -> dict[str, Any]:
    """Which faults are on, how often each has struck, and whose writes are gated."""
    late = faults.late_write
    return {
        "active": faults.active(), "struck": {one.name: one.struck for one in faults if one.struck},
        "late-write": {"armed": late.armed, "gated": sorted(late.gated.values())},
    }  # fmt: skip


def _problem(faults: Faults, name: str, wanted: bool | dict[str, int | str]) -> str | None:
    try:
        known = parameters(type(faults.named(name)))
    except ValueError as error:
        return str(error)
    for parameter, value in (wanted if isinstance(wanted, dict) else {}).items():
        if parameter not in known:
            return f"fault {name} has no parameter {parameter!r}; it has {', '.join(known) or 'none'}"
        if not isinstance(value, known[parameter]) or (isinstance(value, int) and value < 0):
            return f"fault {name}: {parameter} is {'a number, 0 or more' if known[parameter] is int else 'a word'}"
    return None
