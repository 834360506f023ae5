"""``python -m lmdeploy.serve.proxy.proxy``: the arguments of the older script."""
import os
import signal
import subprocess
import sys

import pytest

from lmdeploy.serve.proxy.proxy import native_arguments

PORT = ["--server-port", "10086"]


@pytest.mark.parametrize("given, native", [
    ("", PORT),
    ("--server_name 0.0.0.0 --server_port 1 --strategy random",
     ["--server-name", "0.0.0.0", "--server-port", "1", "--strategy", "random"]),
    ("--server_name=a --server-port=2", ["--server-name", "a", "--server-port", "2"]),
    ("--ssl", ["--ssl", *PORT]),
    ("--ssl True", ["--ssl", *PORT]),
    ("--ssl=False", PORT),
    ("--api_keys k", ["--api-keys", "k", *PORT]),
    ("--api_keys a,b --ssl False", ["--api-keys", "a,b", *PORT]),
    ("--api_keys ['a','b']", ["--api-keys", "a,b", *PORT]),
    ("--api_keys None", PORT),
    ("--api_keys [a", ["--api-keys", "[a", *PORT]),
    ("--help", ["--help", *PORT]),
])
def test_arguments(given, native):
    assert native_arguments(given.split()) == ["serve", "proxy", *native]


def run(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "lmdeploy.serve.proxy.proxy", *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_it_starts_and_ends():
    process = run("--server_name", "127.0.0.1", "--server_port", "0", "--disable_cache_status")
    assert process.stdout.readline().startswith("The proxy listens on http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


def test_a_wrong_strategy_is_a_usage_error(tmp_path):
    process = run("--strategy", "fastest", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    for name in ("random", "min_expected_latency", "min_observed_latency"):
        assert name in errors
