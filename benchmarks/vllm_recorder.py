"""What the recorder costs vLLM: CPU time of its handlers and of its drain, per engine step and as a share of the step.

`.venv-vllm/bin/python benchmarks/vllm_recorder.py MODEL [--batch 8] [--tokens 160] [--runs 6]`; `MODEL`: a checkpoint's
directory. The engine runs in this process. The same work is done several times, and of every step the best time counts:
what other processes of the machine take from a step is in none of them. `make vllm-model` writes a
checkpoint; a directory without weights is served with random ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
os.environ |= {
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_PLUGINS": "",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.adapters.meter import Meter
from engine.adapters.recorder_settings import Settings
from engine.adapters.vllm_plugin import start
from engine.adapters.vllm_recorder import VllmRecorder
from engine.adapters.vllm_settings import VllmSettings


def drain_clock(worker: str) -> int:
    """The CPU clock of the recorder's own thread. Raises SystemExit where it records nothing."""
    for thread in threading.enumerate():
        if thread.name == f"ledger-{worker}" and thread.ident is not None:
            return time.pthread_getcpuclockid(thread.ident)
    raise SystemExit("the recorder did not begin: see the log above")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("model")
    asked.add_argument("--batch", type=int, default=8)
    asked.add_argument("--tokens", type=int, default=160)
    asked.add_argument("--runs", type=int, default=6)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        meter = Meter(now_ns=time.thread_time_ns)
        recorder = VllmRecorder(VllmSettings(Settings(Path(place), "bench", 0, b"k" * 16)), meter=meter)
        done = start(recorder)
        from vllm import LLM, SamplingParams  # noqa: PLC0415  after the hooks, as a plugin is loaded

        engine = LLM(
            given.model, max_model_len=1024, enforce_eager=True, block_size=32, num_gpu_blocks_override=512, dtype="float32",
            max_num_seqs=given.batch, load_format="auto" if any(Path(given.model).glob("*.safetensors")) else "dummy",
        ).llm_engine  # fmt: skip
        sampling = SamplingParams(temperature=0, max_tokens=given.tokens, ignore_eos=True)
        drain = drain_clock("bench")
        runs = []
        for run in range(given.runs + 1):
            for i in range(given.batch):
                prompt = f"{run}/{i}: " + "the quick brown fox jumps over the lazy dog. " * 5
                engine.add_request(f"cmpl-{run}-{i}", prompt, sampling)
            steps, drained = [], time.clock_gettime_ns(drain)
            while engine.has_unfinished_requests():
                hot, begun = meter.ns, time.thread_time_ns()
                engine.step()
                whole = time.thread_time_ns() - begun
                steps.append((meter.ns - hot, whole - (meter.ns - hot)))
            runs.append((steps, time.clock_gettime_ns(drain) - drained))
    count = min(len(steps) for steps, _ in runs)
    hot, rest = (sum(min(steps[i][k] for steps, _ in runs[1:]) for i in range(count)) / count / 1e3 for k in (0, 1))
    beside = min(drained for _, drained in runs[1:]) / count / 1e3
    print(
        f"hooks {len(done.hooks)} in place, {len(done.missing)} not; batch {given.batch}, {count} steps, best of {given.runs} runs"
    )
    print(f"engine step {rest:9.1f} us CPU of its thread, without the recorder")
    print(f"handlers    {hot:9.1f} us a step = {100 * hot / rest:.2f} %, in the same thread")
    print(f"drain       {beside:9.1f} us a step = {100 * beside / rest:.2f} %, in a thread beside it")


if __name__ == "__main__":
    main()
