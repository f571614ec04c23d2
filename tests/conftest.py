"""Fixtures that several rooms share: what is made once in a test run, and real engine processes, one fleet per setting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from prometheus_client.parser import text_string_to_metric_families

# Not this folder: with it on the path, tests/engine would be taken for the package `engine`.
sys.path.insert(0, str(Path(__file__).parent / "run_wide"))

from live_http import HTTP
from made_once import MadeOnce, directory_of_the_run

from engine.ledger.reader import read_ledger
from engine.nursery import Nursery

TENANTS = {"acme": "key-acme", "brio": "key-brio", "cyan": "key-cyan"}
# The same examples in every run, and no law fails because a machine is busy.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

SHAPE = {"prefill_pages": 33, "decode_pages": 97, "page_tokens": 16, "context_tokens": 1024}
"""Prefill holds 512 tokens, decode 1,536; the advertised context is 1,024."""


@dataclass(frozen=True)
class LiveEngine:
    """A started engine as its client and its operator see it."""

    state: dict
    ledger: Path
    run_dir: Path
    running: Any  # engine.serve.RunningEngine: its processes

    @property
    def gateway(self) -> str:
        return self.state["gateway"]

    @property
    def prefill(self) -> str:
        return self.state["prefill"][0]

    @property
    def decode(self) -> str:
        return self.state["decode"][0]

    @property
    def workers(self) -> list[str]:
        """Doors of all workers."""
        return [*self.state["prefill"], *self.state["decode"]]

    @property
    def hop(self) -> dict[str, str]:
        """Headers that open the workers' doors."""
        return {"x-kvwitness-hop": Path(self.state["hop_key_file"]).read_text()}

    def client(self, tenant: str = "acme") -> dict[str, str]:
        """Headers of a tenant's client."""
        return {"authorization": f"Bearer {TENANTS[tenant]}"}

    def ask(
        self, path: str = "/v1/completions", tenant: str = "acme", headers: dict[str, str] | None = None,
        timeout: float = 30, **body: Any,
    ) -> httpx.Response:  # fmt: skip
        """One request of a tenant's client."""
        headers = {**self.client(tenant), **(headers or {})}
        return HTTP.post(self.gateway + path, json={"model": "m", **body}, headers=headers, timeout=timeout)

    def post(self, url: str, path: str, body: dict) -> dict:
        """What the operator posts at a worker's door."""
        answer = HTTP.post(url + path, json=body, headers=self.hop, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def info(self, url: str | None = None) -> dict:
        """What a process says of itself, the gateway unless another is named."""
        return HTTP.get(f"{url or self.gateway}/server_info", timeout=10).json()

    def metrics(self, url: str) -> dict[tuple[str, ...], float]:
        """The metrics of one process by name and labels."""
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(HTTP.get(f"{url}/metrics", timeout=10).text)
            for sample in family.samples
        }

    def idle(self) -> bool:
        """Whether no worker has a request."""
        return all(self.metrics(url)["kvwitness_running_requests",] == 0 for url in self.workers)

    def rows_of(self, rid: str, *ops: str) -> dict[str, dict]:
        """The last of these rows of one request on each worker, from the ledger as it is now."""
        requests = read_ledger(self.ledger).tables["requests"].to_pylist()
        known = {(row["worker"], row["epoch"], row["req"]) for row in requests if row["rid"] == rid}
        return {
            row["worker"]: row
            for row in requests
            if (row["worker"], row["epoch"], row["req"]) in known and row["op"] in ops
        }

    def fault_state(self, url: str) -> dict:
        """Which faults of a process are on, how often each has struck, and whose writes are gated."""
        return HTTP.get(f"{url}/faults", headers=self.hop, timeout=10).json()

    def switch(self, *urls: str, **faults: bool | dict) -> None:
        """Switch faults (names with underscores) of some processes; of all workers unless some are named."""
        for url in urls or self.workers:
            self.post(url, "/faults", {name.replace("_", "-"): on for name, on in faults.items()})

    def audit(self, url: str) -> dict:
        """What an audit of one worker finds."""
        return self.post(url, "/audit", {})

    def judged(self) -> dict[str, dict]:
        """The verdicts of all responses from the ledger as it is now, by rid; of the replay alone, see `live_engine`."""
        from forensics.foreign_reads import foreign_reads

        rows = foreign_reads(read_ledger(self.ledger), engine="replay").responses.to_pylist()
        return {row["rid"]: row for row in rows}

    def wrong_pages(self) -> list:
        """What audits of its workers find wrong; nothing is asked where a fault has struck, or of the dead."""
        dead, found = self.running.ended(), []
        names = [f"{role}-{i}" for role in ("prefill", "decode") for i in range(len(self.state[role]))]
        for name, url in zip(names, self.workers, strict=True):
            if name not in dead and not self.fault_state(url)["struck"]:
                audit = self.audit(url)
                found += [audit] if audit["cache"] or any(pool["wrong"] for pool in audit["pools"].values()) else []
        return found

    def kill(self, name: str) -> None:
        """Kill -9 one process; returns when it is gone."""
        child = self.running.children[name]
        child.kill()
        child.wait()


LONGEST_FIRST = (
    "test_fault_scenes.py", "test_stand_ins.py", "test_samples.py", "test_library.py", "test_campaign_slice.py",
    "test_detectors_page.py", "test_tui.py", "test_sql_engine.py",
)  # fmt: skip
"""Files by the time they take. What begins last is short then, and the workers of a run end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; everything else stays in its order."""
    place = {name: i for i, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept between commands is kept for this test run alone, and for all its processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory_of_the_run(tmp_path_factory.getbasetemp()).with_name("cache")))
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once(name, make)`: what `make` gave in the first process of this run that asked for it."""
    return MadeOnce(directory_of_the_run(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """What forks the processes of every engine that the tests start themselves: torch is imported there, once."""
    with Nursery() as made:
        yield made


@pytest.fixture(scope="session")
def live_engine(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Callable[..., LiveEngine]]:
    """Factory: `live_engine(faults=(...), defences={...}, **shape)`; the same setting gives the same engine.

    At the end every worker on which no fault has struck has to account for its pages, and both engines of `forensics` have
    to agree on every ledger.
    """
    from engine.config import EngineConfig
    from engine.serve import start_engine
    from forensics.foreign_reads import foreign_reads

    running: dict[tuple, tuple] = {}

    def start(
        faults: tuple[str, ...] = (), defences: dict[str, str] | None = None, truth: bool = False, **shape: Any
    ) -> LiveEngine:
        key = (tuple(faults), tuple(sorted((defences or {}).items())), truth, tuple(sorted(shape.items())))
        if key not in running:
            place = tmp_path_factory.mktemp("engine")
            config = EngineConfig(
                ledger=str(place / "ledger"), run_dir=str(place / "run"), faults=tuple(faults), defences=defences or {},
                truth=truth, tenants=TENANTS, **{**SHAPE, **shape},
            )  # fmt: skip
            engine = start_engine(config, nursery)
            running[key] = engine, LiveEngine(engine.state, place / "ledger", place / "run", engine)
        return running[key][1]

    yield start
    wrong = [each for _, engine in running.values() for each in engine.wrong_pages()]
    with ThreadPoolExecutor(len(running) or 1) as pool:
        list(pool.map(lambda pair: pair[0].stop(), running.values()))
    assert not wrong, wrong
    for _, engine in running.values():
        foreign_reads(read_ledger(engine.ledger))


@pytest.fixture(scope="session")
def two_of_each(live_engine: Callable[..., LiveEngine]) -> LiveEngine:
    """Two workers of each role behind an open gate; a prefill pool holds 1,536 tokens, as the context, decode's 1,024."""
    return live_engine(
        defences={"admission-gate": "off"}, prefill_workers=2, decode_workers=2, prefill_pages=97, decode_pages=65,
        context_tokens=1536,
    )  # fmt: skip
