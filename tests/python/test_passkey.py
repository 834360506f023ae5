"""benchmark/passkey.py finds a number at any depth of a long text, past the length that the model was made for."""
import pathlib
import subprocess
import sys

import pytest

BENCHMARK = pathlib.Path(__file__).parents[2] / "benchmark"


@pytest.fixture(scope="module")
def passkey_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passkey")
    subprocess.run([sys.executable, BENCHMARK / "make_passkey_model.py", folder], check=True, timeout=60)
    return folder


def passkey(model, *flags):
    return subprocess.run([sys.executable, BENCHMARK / "passkey.py", model, *flags],
                          capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("flags", [("--session-len", "4096"),
                                   ("--session-len", "4096", "--rope-scaling-factor", "2.5"),
                                   ("--session-len", "700", "--rounds", "8")],
                         ids=["beyond_training", "dynamic_ntk", "short"])
def test_the_key_is_found_at_every_depth(passkey_model, flags):
    run = passkey(passkey_model, *flags)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 5 * (8 if "--rounds" in flags else 1) + 1
    assert all("found" in line for line in lines) and "NOT FOUND" not in run.stdout


def test_a_missed_key_is_told(passkey_model, tmp_path):
    """Of a model whose head finds nothing."""
    import tiny

    tensors = dict(tiny.read_safetensors(passkey_model / "model.safetensors"))
    tensors["model.layers.0.self_attn.v_proj.weight"] = 0 * tensors["model.layers.0.self_attn.v_proj.weight"]
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((passkey_model / name).read_bytes())
    tiny.write_safetensors(tmp_path / "model.safetensors", tensors)
    run = passkey(tmp_path, "--session-len", "1000")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "NOT FOUND" in run.stdout


def test_the_size_of_the_process_is_checked(passkey_model):
    run = passkey(passkey_model, "--session-len", "300", "--depths", "0.5", "--most-mib", "1")
    assert run.returncode == 1
    assert "0 of 1 not found" in run.stdout


def test_depths_are_shares(passkey_model):
    run = passkey(passkey_model, "--depths", "0,50")
    assert run.returncode == 2
    assert "shares from 0 to 1" in run.stderr


@pytest.mark.parametrize(("flags", "words"), [
    (("--session-len", "10"), "--session-len 10 is too small"),
    (("--session-len", "0"), "session_len"), (("--session-len", "-5"), "session_len"),
    (("--rope-scaling-factor", "-1"), "rope_scaling_factor"), (("--rope-scaling-factor", "0.5"), "rope_scaling_factor"),
    (("--rope-scaling-factor", "nan"), "rope_scaling_factor"), (("--most-key", "50"), "expected at most 40")])
def test_bad_flags_are_one_line(passkey_model, flags, words):
    run = passkey(passkey_model, *flags)
    assert run.returncode == 2 and run.stdout == ""
    assert words in run.stderr and "Traceback" not in run.stderr
