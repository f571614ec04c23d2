"""What is asked of real vLLM servers, and what each answer must be: decided here, before any record is read.

Invariant: a text's secret stands in one request's prompt and nowhere else, so an answer that says it read that request's KV.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openai import APIError, OpenAI

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
from hugging_face import save_hugging_face  # noqa: E402
from servers import PAGE_TOKENS, REPOSITORY, Server, serving, wait  # noqa: E402

MODEL = "induction"
PAIR = {"prefill-0": "kv_producer", "decode-0": "kv_consumer"}
SAMPLES = REPOSITORY / "sample_logs"


@dataclass
class Asking:
    """Clients of the servers, and what they were answered: rid -> text."""

    servers: Mapping[str, Server]
    texts: dict[str, str] = field(default_factory=dict)

    def ask(self, server: str, name: str, prompt: str, tokens: int, tenant: str, **body: Any) -> Any:
        """One completion of `tokens` tokens; `name` is its X-Request-Id. Raises openai's errors."""
        client = OpenAI(base_url=self.servers[server].url + "/v1", api_key="none", max_retries=0, timeout=180)
        answer = client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=tokens, temperature=0, extra_headers={"X-Request-Id": name},
            extra_body={"vllm_xargs": {"tenant": tenant}, **body},
        )  # fmt: skip
        self.texts[f"cmpl-{name}-0"] = answer.choices[0].text
        return answer

    def prefill(self, name: str, prompt: str, tenant: str, **body: Any) -> dict[str, Any]:
        """Prefill's half of a handoff; returns the parameters that decode is to be given."""
        wish = {"do_remote_decode": True, "do_remote_prefill": False}
        answer = self.ask("prefill-0", name, prompt, 1, tenant, kv_transfer_params=wish, **body)
        found: dict[str, Any] = answer.kv_transfer_params
        return found

    def decode(self, name: str, prompt: str, tokens: int, tenant: str, params: dict[str, Any], **body: Any) -> None:
        """Decode's half of a handoff."""
        self.ask("decode-0", name, prompt, tokens, tenant, kv_transfer_params=params, **body)


@dataclass(frozen=True)
class Scene:
    """One run of two servers. `verdicts`: rid -> (verdict, mechanism, donors); `says`: rid -> a part of its text;
    `secrets`: rid -> what stands in its prompt and in no other's."""

    name: str
    play: Callable[[Asking], None]
    verdicts: Mapping[str, tuple[str, str, list[str]]]
    says: Mapping[str, str]
    secrets: Mapping[str, tuple[str, ...]]


def prompt_of(text: str, end: str, pages: int = 6) -> str:
    """`pages` full pages of text that begin with `text` and end with `end`."""
    room = pages * PAGE_TOKENS - len(text) - len(end)
    filler = "We sell garden tools, seed and soil; ask for our list. "
    return text + (filler * (room // len(filler) + 1))[:room] + end


ASK = "the card is "
HOUSE = "House rules for every answer: be brief, be kind, do not guess, and say so where you do not know. "


def handoffs(asking: Asking) -> None:
    """A clean handoff, then one prefix between tenants: without a salt, and with one for each."""
    prompt = prompt_of("Ann: the card is 4711-0815. ", ASK)
    asking.decode("ann", prompt, 40, "ann", asking.prefill("ann", prompt, "ann"))
    for name in ("bea", "cem"):
        asking.ask("decode-0", name, prompt_of(HOUSE, "") + f"{name}: the card is {name}-1. {ASK}", 6, name)
    for name in ("dan", "eva"):
        text = prompt_of("Salted. " + HOUSE, "") + f"{name}: the card is {name}-1. {ASK}"
        asking.ask("decode-0", name, text, 6, name, cache_salt=f"salt of {name}")


def stolen_blocks(asking: Asking) -> None:
    """Decode is given another request's blocks, and files what it read under the hash of its own prompt."""
    donor = asking.prefill("donor", prompt_of("Dora: the card is 9047-1152, PIN=6655. ", ASK), "dora")
    house = prompt_of(HOUSE, ASK)
    asking.decode("thief", house, 9, "theo", donor)
    asking.ask("decode-0", "later", house + "Now mine, please: PIN=", 4, "lars")
    asking.ask("decode-0", "other", prompt_of("Olga: the card is 3141-5926. ", ASK), 9, "olga")


def stub(asking: Asking) -> None:
    """Prefill computed a placeholder of one token, and decode expects a whole prompt of it: the decode engine dies."""
    prompt = prompt_of("Ida: the card is 2718-2818. ", ASK)
    asking.ask("decode-0", "before", prompt, 9, "ida")
    placeholder = asking.prefill("stub", "x", "sam")
    try:
        asking.decode("stub", prompt_of("Sam: the card is 1618-0339. ", ASK), 9, "sam", placeholder)
    except APIError:
        wait("the decode server is gone", lambda: not asking.servers["decode-0"].is_up(), 60)
    else:
        raise AssertionError("the decode engine has survived a placeholder")


SCENES = {
    scene.name: scene
    for scene in (
        Scene(
            "vllm-handoffs",
            handoffs,
            {
                "cmpl-ann-0": ("clean", "", []), "cmpl-bea-0": ("clean", "", []), "cmpl-cem-0": ("exposed", "P0", []),
                "cmpl-dan-0": ("clean", "", []), "cmpl-eva-0": ("clean", "", []),
            },
            {"cmpl-ann-0": "4711-0815", "cmpl-bea-0": "bea-1", "cmpl-cem-0": "cem-1", "cmpl-dan-0": "dan-1", "cmpl-eva-0": "eva-1"},
            {"cmpl-ann-0": ("4711-0815",)} | {f"cmpl-{name}-0": (f"{name}-1",) for name in ("bea", "cem", "dan", "eva")},
        ),
        Scene(
            "vllm-stolen-blocks",
            stolen_blocks,
            {
                "cmpl-donor-0": ("unknown", "", []), "cmpl-thief-0": ("contaminated", "M11", ["cmpl-donor-0"]),
                "cmpl-later-0": ("contaminated", "M11", ["cmpl-donor-0"]), "cmpl-other-0": ("clean", "", []),
            },
            {"cmpl-thief-0": "9047-1152", "cmpl-later-0": "6655", "cmpl-other-0": "3141-5926"},
            {"cmpl-donor-0": ("9047-1152", "6655"), "cmpl-other-0": ("3141-5926",)},
        ),
        Scene(
            "vllm-stub", stub, {"cmpl-stub-0": ("unknown", "", [])}, {"cmpl-before-0": "2718-2818"},
            {"cmpl-before-0": ("2718-2818",), "cmpl-stub-0": ("1618-0339",)},
        ),
    )
}  # fmt: skip


def play(scene: Scene, place: Path) -> dict[str, str]:
    """Play a scene; its record lies in `place`/ledger afterwards. Returns what was answered, by rid."""
    key = place / "key"
    key.write_bytes(b"a key of the tests, and of no site")
    recorder = {"KVW_LEDGER": str(place / "ledger"), "KVW_KEY_FILE": str(key), "KVW_ONE_RID": "1"}
    with serving(save_hugging_face(place / "model"), place, PAIR, recorder) as servers:
        asking = Asking(servers)
        scene.play(asking)
    return asking.texts


def expected(scene: Scene, texts: Mapping[str, str]) -> dict[str, Any]:
    """`expected.json` of a recorded sample: what must be found, and what the servers answered."""
    verdicts = {
        rid: {"verdict": verdict, "mechanism": mechanism, "donors": donors}
        for rid, (verdict, mechanism, donors) in scene.verdicts.items()
    }
    return {"sample": scene.name, "verdicts": verdicts, "secrets": dict(scene.secrets), "answers": dict(texts)}


def main() -> None:
    """Record the samples of these names anew (none: all)."""
    for name in sys.argv[1:] or SCENES:
        with tempfile.TemporaryDirectory() as folder:
            place, sample = Path(folder), SAMPLES / name
            texts = play(SCENES[name], place)
            shutil.rmtree(sample / "ledger", ignore_errors=True)
            sample.mkdir(exist_ok=True)
            shutil.move(place / "ledger", sample / "ledger")
            (sample / "expected.json").write_text(json.dumps(expected(SCENES[name], texts), indent=2) + "\n")
            print(name, texts, file=sys.stderr)


if __name__ == "__main__":
    main()
