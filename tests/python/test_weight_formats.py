"""Checkpoints in other forms give the logits of the same weights in plain f32: quantised, torch.save, Meta's."""
import json
import pathlib
import shutil

import numpy as np
import pytest

import lmdeploy
import quantizers as qz
import tiny
import torch_files
from lmdeploy import PytorchEngineConfig, TurbomindEngineConfig
from lmdeploy.turbomind import TurboMind

LLAMA = pathlib.Path(__file__).parent.parent / "data" / "models" / "llama2"
F32 = TurbomindEngineConfig(dtype="float32", device_type="cpu", num_threads=1)
IDS = [1, 17, 250, 3, 99, 42, 200, 7, 8, 9]
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def logits(path, config=F32):
    with TurboMind.from_pretrained(str(path), config, session_len=64) as model:
        return model.create_instance().decode(IDS)


def linear_of(name):
    """model.layers.0.mlp.up_proj.weight -> model.layers.0.mlp.up_proj"""
    return name.removesuffix(".weight") if name.split(".")[-2] in LINEARS else None


def compressed(weights, form="pack-quantized"):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16, "symmetric": True}
FORMATS = {
    "awq": (qz.pack_awq, {}, {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 16, "zero_point": True}),
    "gptq": (qz.pack_gptq, {}, {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": False}),
    "gptq_v2": (qz.pack_gptq, {"offset": 0}, {"quant_method": "gptq", "bits": 4, "group_size": 16,
                                              "checkpoint_format": "gptq_v2"}),
    "gptq_act_order": (qz.pack_gptq, {"act_order": True}, {"quant_method": "gptq", "bits": 4, "group_size": 16,
                                                           "desc_act": True}),
    "gptq_zero_bias": (qz.pack_gptq, {"bias": True}, {"quant_method": "gptq", "bits": 4, "group_size": 16}),
    "gptq_8bit": (qz.pack_gptq, {"bits": 8, "group": -1}, {"quant_method": "gptq", "bits": 8, "group_size": -1}),
    "gptq_2bit": (qz.pack_gptq, {"bits": 2}, {"quant_method": "gptq", "bits": 2, "group_size": 16}),
    "compressed_int4": (qz.pack_compressed, {}, compressed(INT4)),
    "compressed_int4_asym": (qz.pack_compressed, {"symmetric": False}, compressed({**INT4, "symmetric": False})),
    "compressed_int8": (qz.pack_compressed, {"bits": 8, "group": -1},
                        compressed({"num_bits": 8, "type": "int", "strategy": "channel"})),
    "compressed_w8a8": (qz.pack_int8, {"suffix": "weight_scale"},
                        compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, "int-quantized")),
    "compressed_fp8": (qz.pack_fp8, {"per_row": True},
                       compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, "float-quantized")),
    "fp8_blocks": (qz.pack_fp8, {"block": (128, 128), "suffix": "weight_scale_inv"},
                   {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                    "weight_block_size": [128, 128]}),
    "fp8_tensor": (qz.pack_fp8, {}, {"quant_method": "fp8", "activation_scheme": "static"}),
    "smooth_quant": (qz.pack_int8, {}, {"quant_method": "smooth_quant", "quant_dtype": "int8"}),
    "smooth_quant_unnamed": (qz.pack_int8, {}, None),
    "awq_unnamed": (qz.pack_awq, {}, None),
    "gptq_unnamed": (qz.pack_gptq, {}, None),
}


def write_pair(folder, pack, options, quantization, skip=()):
    """Folders with the packed and with the dequantised weights."""
    weights = qz.read_bf16_safetensors(LLAMA / "model.safetensors")
    packed, dense = {}, {}
    for name, weight in weights.items():
        linear = linear_of(name)
        if linear is None or linear.split(".")[-1] in skip:
            packed[name] = dense[name] = weight
        else:
            tensors, dense[name] = pack(linear, weight, **options)
            packed.update(tensors)
    config = json.loads((LLAMA / "config.json").read_text())
    for path, tensors in (folder / "packed", packed), (folder / "dense", dense):
        path.mkdir()
        qz.write_safetensors(path / "model.safetensors", tensors)
        (path / "config.json").write_text(json.dumps(config))
        shutil.copy(LLAMA / "generation_config.json", path)
    if quantization is not None:
        (folder / "packed" / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    return folder / "packed", folder / "dense"


def assert_same_weights(packed, dense):
    """Integers and f32 are summed in another order; one wrong weight of one layer would change logits by far more."""
    want = logits(dense)
    np.testing.assert_allclose(logits(packed), want, rtol=0, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", FORMATS)
def test_quantised_checkpoint_equals_its_dequantised_weights(tmp_path, name):
    packed, dense = write_pair(tmp_path, *FORMATS[name])
    assert_same_weights(packed, dense)
    got = logits(packed)
    original = logits(LLAMA)[0]
    if "2bit" not in name:  # near the original: nothing is transposed or out of order
        assert np.corrcoef(got[0].ravel(), original.ravel())[0, 1] > 0.95


def test_modules_that_were_left_out(tmp_path):
    quantization = {**FORMATS["awq"][2], "group_size": 32, "modules_to_not_convert": ["down_proj"]}
    packed, dense = write_pair(tmp_path, qz.pack_awq, {"group": 32}, quantization, skip=("down_proj",))
    assert_same_weights(packed, dense)


def test_f61_group_size_that_is_not_supported(tmp_path):
    packed, _ = write_pair(tmp_path, *FORMATS["awq"][:2], {**FORMATS["awq"][2], "group_size": 24})
    with pytest.raises(NotImplementedError, match="group_size 24 is not supported; supported are -1, 16, 32, 64, 128"):
        logits(packed)
    (packed / "config.json").write_text((packed / "config.json").read_text().replace('size": 24', 'size": 128'))
    with pytest.raises(ValueError, match="group_size 128, which does not divide the 144 inputs"):
        logits(packed)


@pytest.mark.parametrize("config", [TurbomindEngineConfig, PytorchEngineConfig])
def test_f63_format_is_detected_and_mismatches_are_named(tmp_path, config):
    packed, dense = write_pair(tmp_path, *FORMATS["smooth_quant"])
    with pytest.raises(ValueError, match="folder says w8a8, option says awq"):
        lmdeploy.pipeline(str(packed), config(model_format="awq"))
    with pytest.raises(ValueError, match="folder says hf, option says fp8"):
        lmdeploy.pipeline(str(dense), config(model_format="fp8"))
    with pytest.raises(ValueError, match="model_format is \"int3\", expected one of hf, llama, gguf, awq"):
        lmdeploy.pipeline(str(dense), config(model_format="int3"))
    with lmdeploy.pipeline(str(packed), config(model_format="w8a8")):
        pass


# ---- torch.save

def as_bf16(weight):
    return (weight.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_torch_checkpoint_equals_safetensors(tmp_path, legacy):
    weights = {name: as_bf16(weight) for name, weight in qz.read_bf16_safetensors(LLAMA / "model.safetensors").items()}
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2]), 1):
        torch_files.save(tmp_path / f"pytorch_model-0000{number}-of-00002.bin", {n: weights[n] for n in part}, legacy)
    index = {n: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, n in enumerate(names)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    shutil.copy(LLAMA / "config.json", tmp_path)
    np.testing.assert_array_equal(logits(tmp_path), logits(LLAMA))


def test_quantised_torch_checkpoint(tmp_path):
    packed, dense = write_pair(tmp_path, *FORMATS["awq"])
    weights = qz.read_bf16_safetensors(LLAMA / "model.safetensors")
    tensors = {}
    for name, weight in weights.items():
        linear = linear_of(name)
        tensors.update({name: weight} if linear is None else qz.pack_awq(linear, weight)[0])
    (packed / "model.safetensors").unlink()
    torch_files.save(packed / "pytorch_model.bin", tensors)
    assert_same_weights(packed, dense)


@pytest.mark.parametrize("name", ["model.safetensors", "weights.bin"])
def test_one_file_is_named(alphabet_path, tmp_path, name):
    shutil.copytree(alphabet_path, tmp_path, dirs_exist_ok=True)
    torch_files.save(tmp_path / "weights.bin", tiny.read_safetensors(tmp_path / "model.safetensors"))
    with lmdeploy.pipeline(str(tmp_path / name), num_threads=1) as pipe:
        assert pipe("x", do_preprocess=False).text == "yz"


class Runs:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        import os
        return os.mkdir, (str(self.marker),)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    shutil.copy(LLAMA / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(torch_files.zip_form({"model.norm.weight": Runs(tmp_path / "ran")}))
    with pytest.raises(NotImplementedError, match=r"pytorch_model.bin.*posix.mkdir.*nothing of the file is executed"):
        logits(tmp_path)
    assert not (tmp_path / "ran").exists()


# ---- Meta's form

META_NAMES = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
              "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
              "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
              "post_attention_layernorm": "ffn_norm", "model.layers": "layers", "model.embed_tokens": "tok_embeddings",
              "model.norm": "norm", "lm_head": "output"}
BY_COLUMNS = ("attention.wo", "feed_forward.w2")


def meta_weights(heads=4):
    out = {}
    for name, weight in qz.read_bf16_safetensors(LLAMA / "model.safetensors").items():
        if ".q_proj." in name or ".k_proj." in name:  # halves of a head -> neighbouring pairs
            weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        for hub, meta in META_NAMES.items():
            name = name.replace(hub, meta)
        out[name] = np.ascontiguousarray(weight)
    return out


@pytest.mark.parametrize("files, embedding_axis", [(1, 0), (2, 1), (2, 0)], ids=["one", "llama2", "llama3"])
def test_meta_checkpoint_equals_the_hub_form(tmp_path, files, embedding_axis):
    for number in range(files):
        shard = {"rope.freqs": np.ones(8, np.float32)}
        for name, weight in meta_weights().items():
            axis = embedding_axis if "tok_embeddings" in name else int(any(part in name for part in BY_COLUMNS))
            piece = weight if "norm" in name else np.split(weight, files, axis)[number]
            shard[name] = as_bf16(np.ascontiguousarray(piece))
        torch_files.save(tmp_path / f"consolidated.{number:02}.pth", shard)
    (tmp_path / "params.json").write_text(json.dumps({
        "dim": 64, "n_layers": 2, "n_heads": 4, "multiple_of": 16, "ffn_dim_multiplier": 0.8, "norm_eps": 1e-5,
        "vocab_size": -1}))
    want = logits(LLAMA)
    got = logits(tmp_path, TurbomindEngineConfig(dtype="float32", num_threads=1, model_format="llama"))
    # The same sums in another order of a head's elements.
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    with pytest.raises(ValueError, match="folder says llama, option says hf"):
        logits(tmp_path, TurbomindEngineConfig(model_format="hf"))

