"""Flags of `lmdeploy serve api_server` that need other programs or files: --proxy-url, --qos-config-path."""
import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from api_server import api_server, free_port

from lmdeploy.__main__ import find_program


@contextlib.contextmanager
def running_proxy():
    port = free_port()
    process = subprocess.Popen([str(find_program()), "serve", "proxy", "--server-name", "127.0.0.1", "--server-port",
                                str(port), "--disable-cache-status"], stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as reply:
        return json.load(reply)


def await_nodes(proxy: str, expected: dict) -> None:
    until = time.monotonic() + 30
    while True:
        with contextlib.suppress(urllib.error.URLError):
            nodes = {url: status["models"] for url, status in ask(proxy + "/nodes/status").items()}
            if nodes == expected:
                return
            assert time.monotonic() < until, nodes
        time.sleep(0.05)


def test_a_server_joins_a_proxy_and_leaves_it(alphabet_path, tmp_path):
    with running_proxy() as proxy:
        await_nodes(proxy, {})
        with api_server(alphabet_path, tmp_path / "log", "--model-name", "letters,abc", "--num-threads", "1",
                        "--proxy-url", proxy) as server:
            await_nodes(proxy, {server.url: ["letters", "abc"]})
            answer = ask(proxy + "/v1/chat/completions",
                         {"model": "abc", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})
            assert answer["choices"][0]["message"]["content"] == "abc"
        await_nodes(proxy, {})


@pytest.mark.parametrize(("flags", "words"), [
    (["--qos-config-path", "/no/such/file"], "--qos-config-path: open /no/such/file"), (["--proxy-url", "nonsense"], "nonsense"),
    (["--proxy-url", "ftp://host"], "ftp://host")])
def test_bad_flags_are_refused_before_the_model_is_loaded(flags, words):
    done = subprocess.run([str(find_program()), "serve", "api_server", "/no/such/model", *flags], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode != 0 and words in done.stderr and "/no/such/model" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("text", "words"), [
    ("{", "line 1"), ("[]", "an array"), ('{"user_groups": ["G"], "user_group_map": {}}', 'group "G"')])
def test_bad_quotas_are_refused(text, words, tmp_path):
    path = tmp_path / "qos.json"
    path.write_text(text)
    done = subprocess.run([str(find_program()), "serve", "api_server", "/no/such/model", "--qos_config_path", str(path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and str(path) in done.stderr and words in done.stderr, done.stderr
