"""Names of Prometheus metrics that SGLang 0.5.23 and vLLM 0.32 expose; what is not among them is counted as unknown.

Invariant: names are without the endings that the text format adds (`_total`, `_created`, `_bucket`, `_sum`, `_count`).
"""

from __future__ import annotations

from engine.adapters.json_values import whole

OF_THE_PROCESS = ("process_", "python_", "http_")
"""Prefixes of metrics that every such server exposes and that say nothing about pages."""

_SGLANG = """
num_prefill_bootstrap_queue_reqs num_prefill_inflight_queue_reqs num_decode_prealloc_queue_reqs
num_decode_transfer_queue_reqs num_decode_host_receive_queue_reqs num_decode_host_receive_reqs
num_decode_deferred_kv_release_reqs decode_deferred_kv_release_seconds decode_deferred_kv_release kv_transfer_speed_gb_s
kv_transfer_latency_ms kv_transfer_total_mb kv_transfer_bootstrap_ms kv_transfer_alloc_ms pending_prealloc_token_usage
prealloc_full_token_usage prealloc_swa_token_usage num_bootstrap_failed_reqs num_transfer_failed_reqs
num_prefill_retries failed_session_recoveries num_retracted_reqs num_retracted_requests num_retracted_input_tokens
num_retracted_output_tokens token_usage full_token_usage swa_token_usage mamba_usage num_used_tokens
kv_available_tokens kv_evictable_tokens kv_used_tokens swa_available_tokens swa_evictable_tokens swa_used_tokens
mamba_available mamba_evictable mamba_used max_total_num_tokens max_total_num_tokens_swa page_size num_pages
context_len kv_cache_memory_usage_gb num_running_reqs num_queue_reqs num_paused_reqs decode_sum_seq_lens new_token_ratio
gen_throughput cache_hit_rate queue_time_seconds per_stage_req_latency_seconds realtime_tokens
time_to_first_token_seconds e2e_request_latency_seconds inter_token_latency_seconds
request_time_per_output_token_seconds prompt_tokens generation_tokens num_aborted_requests num_requests cached_tokens
prompt_tokens_histogram uncached_prompt_tokens_histogram generation_tokens_histogram
"""
_VLLM = """
num_requests_running num_requests_waiting num_requests_waiting_by_reason num_requests_kv_fetch_by_stage
kv_cache_usage_perc cache_config_info prefix_cache_queries prefix_cache_hits external_prefix_cache_queries
external_prefix_cache_hits prompt_tokens prompt_tokens_cached generation_tokens num_preemptions prompt_tokens_by_source
prompt_tokens_cached_by_source request_success admission_rejections corrupted_requests time_to_first_token_seconds
inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds
request_prefill_time_seconds request_decode_time_seconds request_time_per_output_token_seconds request_prompt_tokens
request_generation_tokens request_prefill_kv_computed_tokens kv_block_lifetime_seconds
kv_block_idle_before_evict_seconds kv_block_reuse_gap_seconds nixl_xfer_time_seconds nixl_post_time_seconds
nixl_bytes_transferred nixl_num_descriptors nixl_num_failed_transfers nixl_num_failed_notifications
nixl_num_kv_expired_reqs nixl_num_notifications_after_expiry engine_sleep_state estimated_flops_per_gpu
estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu iteration_tokens mm_cache_hits mm_cache_queries
request_max_num_generation_tokens request_num_preemptions request_params_max_tokens request_params_n
"""
KNOWN = frozenset({f"sglang:{name}" for name in _SGLANG.split()} | {f"vllm:{name}" for name in _VLLM.split()})
_ENDINGS = ("_total", "_created", "_bucket", "_sum", "_count")


def family(name: str) -> str:
    """The name without the text format's endings."""
    if name in KNOWN:
        return name
    for ending in _ENDINGS:
        bare = name.removesuffix(ending)
        if bare != name:
            return family(bare)
    return name


def count(value: str) -> int | None:
    """A metric's value (`64`, `64.0`, `1.048576e+06`) as a whole number; None where it is none."""
    try:
        return whole(float(value))
    except ValueError:
        return None
