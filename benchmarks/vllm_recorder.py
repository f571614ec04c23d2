"""What the recorder costs vLLM: CPU time of its handlers and of its drain, per engine step and as a share of the step.

`.venv-vllm/bin/python benchmarks/vllm_recorder.py MODEL [--batch 8] [--tokens 400]`; `MODEL`: a checkpoint's directory.
The engine runs in this process, on one thread. Shares are of the process's CPU time without the recorder's.
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
os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_PLUGINS": ""}
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
    asked.add_argument("--tokens", type=int, default=400)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        meter = Meter(now_ns=time.thread_time_ns)
        recorder = VllmRecorder(VllmSettings(Settings(Path(place), "bench", 0, b"k" * 16)), meter=meter)
        done = start(recorder)
        from vllm import LLM, SamplingParams  # noqa: PLC0415  after the hooks, as a plugin is loaded

        engine = LLM(
            given.model, max_model_len=1024, enforce_eager=True, block_size=32, num_gpu_blocks_override=512, dtype="float32",
            max_num_seqs=given.batch,
        )  # fmt: skip
        prompts = [f"{i}: " + "the quick brown fox jumps over the lazy dog. " * 5 for i in range(given.batch)]
        sampling = SamplingParams(temperature=0, max_tokens=given.tokens, ignore_eos=True)
        engine.generate(prompts, SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
        drain = drain_clock("bench")

        def counts() -> tuple[int, ...]:
            drained = time.clock_gettime_ns(drain)
            return meter.ns, meter.calls, drained, time.process_time_ns(), recorder.steps

        before = counts()
        engine.generate(prompts, sampling, use_tqdm=False)
        hot, calls, drained, whole, steps = (b - a for a, b in zip(before, counts(), strict=True))
        rest = whole - hot - drained
        print(
            f"hooks {len(done.hooks)} in place, {len(done.missing)} not; batch {given.batch}, {steps} steps, {calls} calls"
        )
        print(f"engine step      {rest / steps / 1e3:9.1f} us CPU without the recorder")
        print(f"handlers         {hot / steps / 1e3:9.1f} us a step = {100 * hot / rest:.2f} % (the engine's thread)")
        print(
            f"drain            {drained / steps / 1e3:9.1f} us a step = {100 * drained / rest:.2f} % (a thread beside it)"
        )


if __name__ == "__main__":
    main()
