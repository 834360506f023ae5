"""tools/compare_with.py with two scripts in the place of the programs."""
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/compare_with.py"

# Each run takes the next figure of its list and notes that it ran.
FAKE = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
here = Path(__file__).parent
order = here / "order"
name = Path(__file__).name
order.write_text((order.read_text() if order.exists() else "") + name + " " + " ".join(sys.argv[1:]) + "\\n")
turn = sum(line.startswith(name) for line in order.read_text().splitlines()) - 1
{body}
"""
PEER = """
rates = [(100.0, 10.0), (200.0, 20.0), (300.0, 60.0)][turn]
print("warning: not a line of JSON")
print(json.dumps([{"n_prompt": 512, "n_gen": 0, "avg_ts": rates[0], "build_number": 7, "build_commit": "abc"},
                  {"n_prompt": 0, "n_gen": 128, "avg_ts": rates[1]}]))
"""
OWN = """
rates = [(150.0, 30.0), (200.0, 40.0), (900.0, 60.0)][turn]
figures = {"cases": [{"kind": kind, "forward_tokens_per_s": {"median": rate}, "engine_tokens_per_s": {"median": rate / 2}}
                     for kind, rate in zip(("prefill", "decode"), rates)]}
Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(figures))
"""


@pytest.fixture
def fakes(tmp_path):
    def write(name, body):
        path = tmp_path / name
        path.write_text(FAKE.format(body=body))
        path.chmod(0o755)
        return str(path)
    return write


def run(fakes, *words, peer=PEER, own=OWN, rounds=3):
    command = [sys.executable, str(TOOL), "model.gguf", "--peer", fakes("peer", peer), "--program", fakes("own", own),
               "--rounds", str(rounds), "--threads", "2", "--wait", "0", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_medians_and_ratios_by_round(fakes):
    result = run(fakes)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "build 7 (abc)" in lines[0] and "2 threads, 3 rounds" in lines[0]
    assert lines[-2].split() == ["prefill", "512", "200.0", "(150.0-900.0)", "200.0", "(100.0-300.0)", "1.50", "(1.00-3.00)"]
    assert lines[-1].split() == ["decode", "128", "40.0", "(30.0-60.0)", "20.0", "(10.0-60.0)", "2.00", "(1.00-3.00)"]


def test_the_programs_alternate_with_the_same_arguments(fakes, tmp_path):
    assert run(fakes, "--prompt", "64", "--decode", "8", "--depth", "32", "--peer-arguments", "-fa 1").returncode == 0
    order = (tmp_path / "order").read_text().splitlines()
    assert [line.split()[0] for line in order] == ["own", "peer"] * 3
    assert order[1] == "peer -m model.gguf -p 64 -n 8 -d 32 -t 2 -r 1 -o json -fa 1"
    for words in ("--prompt 64", "--decode 8", "--depth 32", "--threads 2", "--batch 1", "--rounds 1"):
        assert words in order[0]


def test_the_engine_layer(fakes):
    result = run(fakes, "--layer", "engine")
    assert "the whole engine" in result.stdout
    assert result.stdout.splitlines()[-1].split()[2] == "20.0"


@pytest.mark.parametrize("peer, reason", [
    ("print('no figures')", "not llama-bench's JSON"),
    ("print('[]')", "the peer gave no figure for prefill"),
    ("print('[{}]')", "a row without n_prompt"),
    ("sys.stdout.buffer.write(bytes(range(256)))", "not llama-bench's JSON"),
    ("print('[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 0}]')", "avg_ts is 0"),
    ("sys.exit('the model cannot be read')", "ended with code 1: the model cannot be read"),
])
def test_a_peer_that_gives_no_figures(fakes, peer, reason):
    result = run(fakes, peer=peer, rounds=1)
    assert result.returncode == 1
    assert reason in result.stderr.splitlines()[-1]
    assert result.stderr.splitlines()[-1].startswith("compare_with.py: error: ")


def test_our_failure_names_itself(fakes):
    result = run(fakes, own="sys.exit('lmdeploy: error: no such model')", rounds=1)
    assert result.returncode == 1 and "lmdeploy: error: no such model" in result.stderr


@pytest.mark.parametrize("words, reason", [
    (["--rounds", "0"], "--rounds must be at least 1"),
    (["--threads", "x"], "x is not a count"),
    (["--prompt", "0", "--decode", "0"], "nothing to measure"),
    (["--layer", "sampler"], "invalid choice"),
])
def test_bad_flags(fakes, words, reason):
    result = run(fakes, *words)
    assert result.returncode == 2 and reason in result.stderr


@pytest.mark.parametrize("flag", ["--peer", "--program"])
def test_a_program_that_is_not_there(fakes, tmp_path, flag):
    for path in ("/no/such/program", str(tmp_path)):
        result = run(fakes, flag, path, rounds=1)
        assert result.returncode == 1 and f"{flag} {path}: no program that can be run" in result.stderr
        assert not (tmp_path / "order").exists()  # nothing was measured before


def test_waiting_says_so(fakes):
    result = run(fakes, "--wait", "1.1", "--max-load", "0", rounds=1)
    assert result.returncode == 0 and "waiting up to 1.1 s until fewer than 0 CPUs are busy" in result.stderr
