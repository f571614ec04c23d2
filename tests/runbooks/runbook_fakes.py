"""A fake engine with real doors: gateway, prefill and decode as one FastAPI app on a loopback port.

It copies its context as InductionLlama does, from prompts alone, and leaks by continuing the last request's text.
"""

import threading
import time
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

MODEL = "induction-llama"
KEYS = {"canary-a": "key-a-secret", "canary-b": "key-b-secret"}


@dataclass
class Behaviour:
    """How the fake engine is built and what is wrong with it."""

    context: int = 1024
    prefill_pool: int = 1024
    decode_pool: int = 2048
    page: int = 16
    gate: bool = True
    leak: bool = False  # over-pool prompts are answered from the previous request's text
    hang: bool = False  # over-pool prompts are not answered until `released`
    model: str = MODEL
    metric_shift: int = 0  # what /metrics adds to the prefill pool
    drop_metric: str = ""
    decode_context: int = 0
    forget: str = ""  # wipe the prompt before this cue, as if its pages were lost
    over_status: int = 0  # answer over-limit prompts with this status, without a code
    status: int = 0  # answer every completion with this status
    overhead: int = 0  # tokens that a chat template would add


@dataclass
class FakeEngine:
    behaviour: Behaviour
    port: int = 0
    bodies: list = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    last_prompt: str = ""

    def url(self, role):
        return f"http://127.0.0.1:{self.port}/{role}"

    def engine_file(self):
        return {
            "gateway": self.url("gateway"),
            "prefill": [self.url("prefill")],
            "decode": [self.url("decode")],
            "ledger": "/nonexistent/ledger",
            "api_keys": KEYS,
            "hop_key_file": "/nonexistent/hop.key",
        }

    def pool(self, role):
        return self.behaviour.prefill_pool if role == "prefill" else self.behaviour.decode_pool

    def context(self, role):
        return (
            self.behaviour.decode_context
            if role == "decode" and self.behaviour.decode_context
            else self.behaviour.context
        )

    def limit(self, role):
        return min(self.pool(role), self.context(role) - 1)


def continuation(text, count):
    """The copier: what followed the last four characters where they stood before."""
    out = text
    for _ in range(count):
        at = out.find(out[-4:])
        out += out[at + 4] if at + 4 < len(out) else "?"
    return out[len(text) :]


def fake_app(engine):
    app = FastAPI()
    behaviour = engine.behaviour

    @app.get("/{role}/server_info")
    async def server_info(role: str):
        if role == "gateway":
            return {"worker": "gateway-0", "disaggregation_mode": role, "context_length": behaviour.context}
        return {
            "worker": f"{role}-0",
            "disaggregation_mode": role,
            "context_length": engine.context(role),
            "max_total_num_tokens": engine.pool(role),
            "page_size": behaviour.page,
            "max_req_input_len": engine.limit(role),
        }

    @app.get("/{role}/metrics")
    async def metrics(role: str):
        values = {"kvwitness_context_tokens": engine.context(role)}
        if role != "gateway":
            shift = behaviour.metric_shift if role == "prefill" else 0
            values |= {
                "kvwitness_pool_tokens": engine.pool(role) + shift,
                "kvwitness_page_tokens": behaviour.page,
                "kvwitness_prompt_limit_tokens": engine.limit(role),
            }
        lines = [f"# TYPE {k} gauge\n{k} {float(v)}" for k, v in values.items() if k != behaviour.drop_metric]
        return Response("\n".join(lines) + "\n", media_type="text/plain")

    @app.get("/{role}/model_info")
    async def model_info(role: str):
        return {"model_path": behaviour.model, "served_model_name": behaviour.model}

    @app.get("/{role}/health")
    async def health(role: str):
        return {"status": "ok"}

    @app.post("/gateway/v1/completions")
    def completions(body: dict, authorization: str = "", request: Request = None):
        tenant = {f"Bearer {key}": name for name, key in KEYS.items()}.get(request.headers["authorization"])
        if tenant is None:
            return JSONResponse({"error": {"message": "no", "type": "x", "code": "unauthorized"}}, 401)
        engine.bodies.append({**body, "tenant": tenant, "rid": request.headers["x-request-id"]})
        return answer(engine, body)

    return app


def answer(engine, body):
    behaviour, prompt, budget = engine.behaviour, body["prompt"], body["max_tokens"]
    tokens = len(prompt) + behaviour.overhead
    if behaviour.status:
        return JSONResponse({"error": {"message": prompt, "type": "x", "code": "busy"}}, behaviour.status)
    limit = min(engine.limit("prefill"), engine.limit("decode"))
    over_context = tokens + budget > behaviour.context
    source = prompt
    if tokens > limit or over_context:
        if behaviour.over_status:
            return Response(prompt, behaviour.over_status)
        if behaviour.hang:
            engine.released.wait(20)
            return Response(status_code=504)
        if behaviour.gate or over_context:
            code = "prompt_exceeds_context" if over_context else "prompt_exceeds_pool"
            return JSONResponse({"error": {"message": f"{tokens} > {limit}", "type": "x", "code": code}}, 400)
        source = engine.last_prompt if behaviour.leak else "z" * len(prompt)
    elif behaviour.forget and prompt.count(behaviour.forget):
        at = prompt.find(behaviour.forget)
        source = prompt[:at] + "z" * 36 + prompt[at + 36 :]
    engine.last_prompt = prompt
    usage = {"prompt_tokens": tokens, "completion_tokens": budget}
    return {"choices": [{"index": 0, "text": continuation(source, budget)}], "usage": usage}


class RunningFake:
    """Serves one FakeEngine in a thread until `stop`."""

    def __init__(self, engine):
        self.engine = engine
        config = uvicorn.Config(fake_app(engine), host="127.0.0.1", port=0, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < deadline, "the fake engine did not start"
            time.sleep(0.005)
        engine.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self):
        self.engine.released.set()
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(20)


class StepClock:
    """Wall time that moves one millisecond per reading, and real monotonic time."""

    def __init__(self, start_us=1_780_000_000_000_000):
        self.us = start_us

    def now_us(self):
        self.us += 1000
        return self.us

    def monotonic(self):
        return time.monotonic()
