"""The tables of GGUF names say what the gguf package says: each architecture's tensors, and the keys."""
import pathlib
import re

import pytest

gguf = pytest.importorskip("gguf")

SOURCE = (pathlib.Path(__file__).parents[2] / "src" / "lmdeploy" / "formats" / "gguf_tables.cc").read_text()
# Listed there, but in no file that the converter writes, or read without a table.
UNUSED = {"llama": {"attn_rot_embd"}, "starcoder2": {"attn_rot_embd"}, "phi2": {"ffn_norm"},
          "phi3": {"attn_q", "attn_k", "attn_v"}, "deepseek": {"attn_rot_embd"},
          "deepseek2": {"attn_rot_embd", "attn_k", "attn_v"}}
ROPE = {"rope_freqs", "rope_factors_long", "rope_factors_short"}


def table(name, entry):
    """The first strings of the entries `entry{"..."` of an array, through join()."""
    body = re.search(rf"constexpr (?:std::array|auto) {name} = (.*?);\n", SOURCE, re.S).group(1)
    if body.startswith("join("):
        return [s for part in re.findall(r"k\w+", body) for s in table(part, entry)]
    return re.findall(entry + r'\{"([^"]+)"', body)


def architectures():
    """name -> (table of names, table of names in layers)"""
    found = re.findall(r'\.name = "([^"]+)".*?\.names = (\w+),\s+\.layer_names = (\w+)', SOURCE, re.S)
    return {name: (ends, layers) for name, ends, layers in found}


def stem(name):
    return re.sub(r"\.(weight|bias)$", "", name)


def test_the_source_is_understood():
    assert len(architectures()) == 20 and "attn_qkv" in table("kGpt2Layer", "Name")


@pytest.mark.parametrize("name", architectures())
def test_every_tensor_of_an_architecture_has_a_name(name):
    arch = {text: arch for arch, text in gguf.MODEL_ARCH_NAMES.items()}[name]
    listed = {gguf.TENSOR_NAMES[tensor].removeprefix("blk.{bid}.") for tensor in gguf.MODEL_TENSORS[arch]}
    ends, layers = (table(part, "Name") for part in architectures()[name])
    ours = {stem(stored) for stored in ends + layers if "{e}" not in stored}
    assert listed - ours <= ROPE | UNUSED.get(name, set())
    everything = {text.removeprefix("blk.{bid}.") for text in gguf.TENSOR_NAMES.values()}
    assert ours <= everything


def test_every_key_is_one_of_the_format():
    keys = set()
    for group in vars(gguf.Keys).values():
        keys |= {text.removeprefix("{arch}.") for key, text in vars(group).items()
                 if isinstance(text, str) and not key.startswith("__")} if isinstance(group, type) else set()
    used = set(re.findall(r'(?:Key|GgufNeutralRule)\{"([^"]+)"', SOURCE))
    assert len(used) > 30
    # What llama.cpp reads and the package's list lacks.
    assert used - keys <= {"rope.freq_base_swa"}
