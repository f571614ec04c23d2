"""The checkpoint as files, its byte codes, and the byte tokenizer."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint import ModelConfig, default_checkpoint, induction_llama, load_checkpoint, save_checkpoint
from engine.induction import byte_codes
from engine.tokenizer import ByteTokenizer


def digests(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


def test_the_same_bytes_every_time_and_in_every_process(tmp_path):
    first, second = default_checkpoint(tmp_path / "a"), tmp_path / "b"
    code = "import sys, pathlib; from engine.checkpoint import *; default_checkpoint(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, second], check=True, timeout=60, env=environment)
    assert set(digests(first)) == {"config.json", "model.safetensors"}
    assert digests(first) == digests(second / "induction-llama")


def test_a_checkpoint_that_is_there_is_left_alone(tmp_path):
    path = default_checkpoint(tmp_path)
    before = (path / "model.safetensors").stat().st_mtime_ns
    assert default_checkpoint(tmp_path) == path
    assert (path / "model.safetensors").stat().st_mtime_ns == before


def test_what_is_loaded_is_what_was_saved(tmp_path):
    weights, config = induction_llama(), ModelConfig(name="other", norm_eps=1e-6)
    save_checkpoint(tmp_path, weights, config)
    loaded, described = load_checkpoint(tmp_path)
    assert described == config
    assert set(loaded) == set(weights)
    assert all(np.array_equal(loaded[name].numpy(), weights[name]) for name in weights)


def test_names_and_shapes_are_hugging_faces(checkpoint):
    weights, config = load_checkpoint(checkpoint)
    described = json.loads((checkpoint / "config.json").read_text())
    assert described["architectures"] == ["LlamaForCausalLM"]
    shape = {name: list(tensor.shape) for name, tensor in weights.items()}
    heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    assert shape["model.layers.1.self_attn.q_proj.weight"] == [heads, described["hidden_size"]]
    assert shape["model.layers.1.self_attn.k_proj.weight"] == [kv, described["hidden_size"]]
    assert shape["model.layers.0.mlp.down_proj.weight"] == [described["hidden_size"], described["intermediate_size"]]
    assert shape["lm_head.weight"] == [described["vocab_size"], described["hidden_size"]]
    assert len(shape) == 3 + 9 * described["num_hidden_layers"]


def test_a_checkpoint_that_cannot_be_used_says_why(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, induction_llama(), ModelConfig())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_interleaved": False}))
    with pytest.raises(ValueError, match="interleaved RoPE"):
        load_checkpoint(tmp_path)
    del config["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="lacks rope_theta"):
        load_checkpoint(tmp_path)


def test_bytes_are_words_at_distance_six():
    codes = byte_codes()[1:]
    gram = codes @ codes.T
    assert np.allclose(np.diag(gram), 1)
    assert (gram - np.diag(np.diag(gram))).max() <= 0.25
    assert not byte_codes()[0].any()


@given(st.text())
def test_the_tokenizer_gives_back_any_text_but_for_padding(text):
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("\0", "")


def test_padding_renders_as_nothing():
    assert ByteTokenizer().decode([0, 104, 0, 105, 0]) == "hi"
