"""Converted workspaces: files written from the description alone, and those of `lmdeploy convert`."""
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lmdeploy
import quantizers
import tiny
import workspaces
from lmdeploy import TurbomindEngineConfig
from lmdeploy.errors import InvalidArgumentError, InvalidDataError, UnsupportedError
from lmdeploy.turbomind import TurboMind

F32 = TurbomindEngineConfig(dtype="float32", num_threads=1)
IDS = [int(i) for i in np.random.default_rng(3).integers(0, tiny.VOCAB_SIZE, 24)]


def make_llama(dtype="fp16", biases=False, **changes):
    """(weights, config) whose numbers all are exact in ``dtype``."""
    rng = np.random.default_rng(23)
    config = tiny.llama_config(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **changes)
    weights = tiny.random_layers(rng, config)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = rng.normal(0, 0.5, (config["vocab_size"], tiny.HIDDEN)).astype(np.float32)
    weights["model.norm.weight"] = rng.normal(1, 0.1, tiny.HIDDEN).astype(np.float32)
    if biases:
        for layer in range(2):
            for name, size in (("q", 64), ("k", 32), ("v", 32)):
                weights[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = rng.normal(0, 0.5, size)
    exact = workspaces.to_bf16 if dtype == "bf16" else lambda values: values.astype(np.float16).astype(np.float32)
    return {name: exact(values) for name, values in weights.items()}, config


def write_hub(folder, weights, config):
    folder.mkdir()
    tiny.write_safetensors(folder / "model.safetensors", weights)
    if config["model_type"] == "llama" and any(name.endswith("q_proj.bias") for name in weights):
        config = config | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def convert(*arguments):
    return subprocess.run([sys.executable, "-m", "lmdeploy", "convert", *map(str, arguments)], capture_output=True,
                          text=True)


def logits(path, **engine):
    with TurboMind.from_pretrained(str(path), F32, **engine) as model:
        return model.create_instance().decode(IDS)[0]


def edit(root, **changes):
    path = pathlib.Path(root) / "triton_models" / "weights" / "config.ini"
    keys = dict(line.split(" = ", 1) for line in path.read_text().splitlines() if " = " in line)
    workspaces.write_ini(pathlib.Path(root), keys | {key: str(value) for key, value in changes.items()})


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("write", [workspaces.write_g2, workspaces.write_g3])
def test_equals_the_checkpoint_it_was_made_from(tmp_path, write, dtype, tp, biases):
    weights, config = make_llama(dtype, biases)
    want = logits(write_hub(tmp_path / "hub", weights, config))
    extra = {"attn_bias": 1} if biases and write is workspaces.write_g3 else {}
    got = logits(write(tmp_path / "workspace", weights, config, tp=tp, dtype=dtype, **extra))
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    if not biases:
        np.testing.assert_allclose(got, tiny.reference_logits(IDS, weights, config), atol=1e-4 * np.abs(want).max())


def test_padded_vocabulary(tmp_path):
    weights, config = make_llama(vocab_size=259)
    with TurboMind.from_pretrained(str(workspaces.write_g2(tmp_path / "w", weights, config, tp=2)), F32) as model:
        got = model.create_instance().decode(IDS[:4])[0]
    assert got.shape[1] == 259
    np.testing.assert_allclose(got, tiny.reference_logits(IDS[:4], weights, config), atol=1e-3)


def test_experts_of_config_yaml(tmp_path):
    weights, config = make_llama()
    rng = np.random.default_rng(5)
    experts = [{f"{name}_proj.weight": rng.normal(0, 0.2, shape).astype(np.float16).astype(np.float32)
                for name, shape in (("gate", (24, 64)), ("up", (24, 64)), ("down", (64, 24)))} for _ in range(4)]
    gate = rng.normal(0, 1, (4, 64)).astype(np.float16).astype(np.float32)
    root = workspaces.write_g3(tmp_path / "w", weights, config, tp=2, expert_num=[0, 4], expert_inter_size=24,
                               experts_per_token=2, norm_topk_prob=True, inter_size=[48, 0])
    folder = root / "triton_models" / "weights"
    for path in folder.glob("layers.1.feed_forward.*"):
        path.unlink()
    writer = workspaces.Writer(tmp_path / "experts", "fp16", 2)
    workspaces.write_experts(writer, experts, gate, "layers.1.moe_ffn")
    for path in writer.folder.iterdir():
        shutil.move(path, folder)
    hub = {name: tensor for name, tensor in weights.items() if not name.startswith("model.layers.1.mlp")}
    hub["model.layers.1.mlp.gate.weight"] = gate
    for number, expert in enumerate(experts):
        hub |= {f"model.layers.1.mlp.experts.{number}.{name}": tensor for name, tensor in expert.items()}
    for layer in range(2):  # norms that change nothing do not exist: the family without them is Qwen2-MoE
        for name, size in (("q", 64), ("k", 32), ("v", 32)):
            hub[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = np.zeros(size, np.float32)
    for name, shape in (("gate", (8, 64)), ("up", (8, 64)), ("down", (64, 8))):
        hub[f"model.layers.1.mlp.shared_expert.{name}_proj.weight"] = np.zeros(shape, np.float32)
    hub["model.layers.1.mlp.shared_expert_gate.weight"] = np.zeros((1, 64), np.float32)
    moe = config | {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 8, "norm_topk_prob": True,
                    "mlp_only_layers": [0], "decoder_sparse_step": 1, "max_position_embeddings": 512}
    want = logits(write_hub(tmp_path / "hub", hub, moe))
    np.testing.assert_allclose(logits(root), want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("padded_output", [False, True])
@pytest.mark.parametrize("q_rank", [0, 16])
def test_latent_attention_of_config_yaml(tmp_path, q_rank, padded_output):
    """DeepSeek-V2 without experts, beside the same weights under their hub names."""
    rng = np.random.default_rng(9)
    heads, nope, rope, value, kv_rank, hidden = 4, 12, 4, 8, 20, tiny.HIDDEN
    base, config = make_llama()

    def matrix(rows, cols):
        return rng.normal(0, cols ** -0.5, (rows, cols)).astype(np.float16).astype(np.float32)

    hub = {name: tensor for name, tensor in base.items() if "self_attn" not in name}
    for layer in range(2):
        prefix = f"model.layers.{layer}.self_attn."
        if q_rank:
            hub |= {f"{prefix}q_a_proj.weight": matrix(q_rank, hidden), f"{prefix}q_b_proj.weight":
                    matrix(heads * (nope + rope), q_rank), f"{prefix}q_a_layernorm.weight": np.ones(q_rank, np.float32)}
        else:
            hub[f"{prefix}q_proj.weight"] = matrix(heads * (nope + rope), hidden)
        hub |= {f"{prefix}kv_a_proj_with_mqa.weight": matrix(kv_rank + rope, hidden),
                f"{prefix}kv_a_layernorm.weight": np.ones(kv_rank, np.float32),
                f"{prefix}kv_b_proj.weight": matrix(heads * (nope + value), kv_rank),
                f"{prefix}o_proj.weight": matrix(hidden, heads * value)}
    deepseek = config | {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "kv_lora_rank": kv_rank,
                         "q_lora_rank": q_rank or None, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope,
                         "v_head_dim": value, "n_routed_experts": None, "max_position_embeddings": 512}
    want = logits(write_hub(tmp_path / "hub", hub, deepseek))

    writer = workspaces.Writer(tmp_path / "w" / "triton_models" / "weights", "fp16", 2)
    workspaces.write_g3_ends(writer, hub)
    writer.file("norm.weight", hub["model.norm.weight"])
    for layer in range(2):
        prefix, name = f"model.layers.{layer}.", f"layers.{layer}"
        for ours, theirs in (("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")):
            writer.file(f"{name}.{ours}.weight", hub[f"{prefix}{theirs}.weight"])
        workspaces.write_mlp(writer, hub, f"{prefix}mlp.", f"{name}.feed_forward")
        attention = {key.removeprefix(f"{prefix}self_attn.").removesuffix(".weight"): tensor
                     for key, tensor in hub.items() if key.startswith(f"{prefix}self_attn.")}
        for part in ("q_a_proj", "kv_a_proj_with_mqa"):
            if part in attention:
                for rank in range(2):
                    writer.file(f"{name}.attention.{part.removesuffix('_with_mqa')}.{rank}.weight", attention[part].T)
        for part in ("q_a_layernorm", "kv_a_layernorm"):
            if part in attention:
                writer.file(f"{name}.attention.{part}.weight", attention[part])
        for part in ("q_proj", "q_b_proj", "kv_b_proj"):
            if part in attention:
                writer.split(f"{name}.attention.{part}", "weight", attention[part].T, 1)
        output = attention["o_proj"].T
        if padded_output:
            output = np.pad(output.reshape(heads, value, hidden), ((0, 0), (0, nope + rope - value), (0, 0)))
            output = output.reshape(-1, hidden)
        writer.split(f"{name}.attention.wo", "weight", output, 0)
    yaml = workspaces.g3_config(config, 2, size_per_head=nope + rope, kv_lora_rank=kv_rank, q_lora_rank=q_rank,
                                qk_rope_dim=rope, v_head_dim=value, kv_head_num=heads)
    yaml["attention_config"]["rotary_embedding"] = rope
    (tmp_path / "w" / "triton_models" / "tokenizer").mkdir()
    workspaces.write_yaml(tmp_path / "w", yaml)
    np.testing.assert_allclose(logits(tmp_path / "w"), want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("tp", [1, 2])
def test_four_bits_of_config_yaml(tmp_path, tp):
    weights, config = make_llama(intermediate_size=64)
    root = workspaces.write_g3(tmp_path / "w", weights, config, tp=tp, group_size=32)
    yaml = workspaces.g3_config(config, tp, group_size=32, weight_type="int4")
    workspaces.write_yaml(root, yaml)
    folder = root / "triton_models" / "weights"
    writer = workspaces.Writer(tmp_path / "four", "fp16", tp)
    for layer in range(2):
        for name, ours, axis in (("gate", "w1", 1), ("up", "w3", 1), ("down", "w2", 0)):
            key, file = f"model.layers.{layer}.mlp.{name}_proj.weight", f"layers.{layer}.feed_forward.{ours}"
            weights[key] = np.ascontiguousarray(workspaces.quantize(writer, file, weights[key].T, axis, 32).T)
            for rank in range(tp):
                (folder / f"{file}.{rank}.weight").unlink()
    for path in writer.folder.iterdir():
        shutil.move(path, folder)
    want = tiny.reference_logits(IDS, weights, config)
    np.testing.assert_allclose(logits(root), want, atol=1e-4 * np.abs(want).max())
    zeros = folder / "layers.0.feed_forward.w1.0.zeros"
    zeros.write_bytes(np.full(zeros.stat().st_size // 2, 2.5, np.float16).tobytes())
    with pytest.raises(InvalidDataError, match="w1.0.zeros.*2.5.*0 to 16"):
        logits(root)


def test_dynamic_ntk_and_logn(tmp_path):
    weights, config = make_llama(max_position_embeddings=8)
    scaled = config | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    want = logits(write_hub(tmp_path / "hub", weights, scaled), session_len=64)
    root = workspaces.write_g2(tmp_path / "w", weights, config, max_position_embeddings=8, rope_scaling_factor=2.0)
    np.testing.assert_allclose(logits(root), want, atol=1e-5 * np.abs(want).max())
    plain = logits(tmp_path / "hub", session_len=64, hf_overrides={"rope_scaling": None, "use_logn_attn": True})
    edit(root, rope_scaling_factor=0.0, use_logn_attn=1)
    np.testing.assert_allclose(logits(root), plain, atol=1e-5 * np.abs(want).max())
    assert np.abs(logits(root, use_logn_attn=False) - plain)[10:].max() > 1e-2


@pytest.fixture(scope="module")
def alphabet_workspace(tmp_path_factory, alphabet_path):
    """The alphabet model, converted by the program."""
    root = tmp_path_factory.mktemp("converted") / "workspace"
    done = convert("qwen", alphabet_path, "--dst-path", root)
    assert done.returncode == 0, done.stderr
    assert str(root) in done.stdout
    return root


def test_converted_by_the_program(alphabet_workspace):
    with lmdeploy.pipeline(str(alphabet_workspace), num_threads=1) as pipe:
        assert pipe("abc", do_preprocess=False).text == "defghijklmnopqrstuvwxyz"
        # The template of model_name, not the tokenizer's own.
        assert pipe.preview("x").text.startswith("<|im_start|>system\nYou are a helpful assistant.")
    with lmdeploy.pipeline(str(alphabet_workspace / "triton_models" / "weights"), num_threads=1) as pipe:
        assert pipe("x", do_preprocess=False).text == "yz"
    assert lmdeploy.Tokenizer(str(alphabet_workspace)).encode("ab") == [97, 98]


def test_edits_are_engine_defaults_and_arguments_win(tmp_path, alphabet_workspace):
    root = tmp_path / "w"
    shutil.copytree(alphabet_workspace, root, symlinks=True)
    edit(root, session_len=40, cache_block_seq_len=16, cache_max_entry_count=9)

    def opened(**arguments):
        with lmdeploy.pipeline(str(root), num_threads=1, **arguments) as pipe:
            return pipe.session_len, pipe._core.stats().total_blocks

    assert opened() == (40, 9)
    assert opened(session_len=24) == (24, 9)
    assert opened(backend_config=TurbomindEngineConfig(cache_max_entry_count=12)) == (40, 12)
    edit(root, quant_policy=3)
    with pytest.raises(InvalidArgumentError, match="config.ini.*quant_policy is 3"):
        opened()
    edit(root, quant_policy=0, max_batch_size=0)
    with pytest.raises(InvalidArgumentError, match="config.ini.*max_batch_size is 0"):
        opened()
    assert opened(max_batch_size=4) == (40, 9)
    edit(root, max_batch_size=64, model_name="nonsense")
    with pytest.raises(InvalidArgumentError, match="config.ini.*nonsense.*lmdeploy list"):
        opened()
    assert opened(chat_template_config=lmdeploy.ChatTemplateConfig("llama2")) == (40, 9)


def test_quantised_checkpoints_keep_their_form(tmp_path):
    weights, config = make_llama()
    stored = {name: tensor for name, tensor in weights.items() if ".mlp." not in name}
    for name, tensor in weights.items():
        if ".mlp." in name:
            stored |= quantizers.pack_awq(name.removesuffix(".weight"), tensor)[0]
    source, root = tmp_path / "awq", tmp_path / "workspace"
    source.mkdir()
    quantizers.write_safetensors(source / "model.safetensors", stored)
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True}
    (source / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    wrong = convert("llama2", source, "--model-format", "awq", "--group-size", 128, "--dst-path", root)
    assert wrong.returncode == 1 and "groups of 16" in wrong.stderr and not root.exists()
    done = convert("llama2", source, "--model-format", "awq", "--group-size", 16, "--dst-path", root)
    assert done.returncode == 0 and "weight_layout = 1" in done.stdout, done.stderr
    np.testing.assert_array_equal(logits(root), logits(source))
    edit(root, session_len=30)
    with TurboMind.from_pretrained(str(root), F32) as model:
        assert model.session_len == 30


def test_refusals(tmp_path):
    weights, config = make_llama()
    root = workspaces.write_g2(tmp_path / "w", weights, config)
    edit(root, weight_type="int4")
    with pytest.raises(UnsupportedError, match="weight_type.*AWQ checkpoint"):
        logits(root)
    edit(root, weight_type="fp16", lora_policy="plora")
    with pytest.raises(UnsupportedError, match="lora_policy.*original checkpoint"):
        logits(root)
    edit(root, lora_policy="", head_num="many")
    with pytest.raises(InvalidDataError, match="head_num.*many"):
        logits(root)
