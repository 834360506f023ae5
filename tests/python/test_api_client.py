"""LMDeploy's own helpers in Python for servers: APIClient, get_model_list, lmdeploy.serve(), lmdeploy.client()."""
import http.server
import inspect
import signal
import socket
import subprocess
import sys
import threading
import time

import lmdeploy
import pytest
from api_server import api_server, free_port
from lmdeploy.serve.openai.api_client import APIClient, get_model_list

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--model-name", "letters", "--api-keys", "k1", "--session-len", "256",
                    "--num-threads", "1") as started:
        yield started


@pytest.fixture
def client(server):
    return APIClient(server.url, api_key="k1")


def test_the_documented_use(client):
    model_name = client.available_models[0]
    assert model_name == "letters" and client.available_models is client.available_models
    messages = [{"role": "user", "content": "Say this is a test!"}]
    items = list(client.chat_completions_v1(model=model_name, messages=messages, temperature=0))
    assert [item["choices"][0]["message"]["content"] for item in items] == [LETTERS]
    items = list(client.completions_v1(model=model_name, prompt="hi", temperature=0, max_tokens=4))
    assert [item["choices"][0]["text"] for item in items] == ["jklm"]


def test_streams(client):
    pieces = list(client.chat_completions_v1("letters", "a", temperature=0, max_tokens=3, stream=True))
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces) == "bcd"
    pieces = list(client.completions_v1("letters", "w", temperature=0, stream=True, logprobs=1))
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == "xyz"
    assert any(piece["choices"][0]["logprobs"] for piece in pieces)  # a field beyond the named ones


def test_a_stream_that_is_left_ends_at_the_server(client, server):
    stream = client.completions_v1("letters", "a", max_tokens=200, ignore_eos=True, stream=True)
    next(stream)
    stream.close()


def test_encode(client):
    assert client.encode("hi") == ([104, 105], 2)
    assert client.encode(["hi", "a"]) == ([[104, 105], [97]], [2, 1])
    ids, length = client.encode("hi", do_preprocess=True)
    assert length == len(ids) > 2


def test_model_list(server):
    assert get_model_list(server.url + "/v1/models", api_key="k1") == ["letters"]
    without_scheme = server.url.removeprefix("http://")
    assert lmdeploy.client(without_scheme, "k1").available_models == ["letters"]


def test_errors_carry_the_servers_words(server, client):
    with pytest.raises(ValueError, match="valid api key"):
        APIClient(server.url, "wrong").available_models  # noqa: B018
    with pytest.raises(FileNotFoundError, match="'x' does not exist"):
        next(client.chat_completions_v1("x", "hi"))
    for stream in (False, True):
        with pytest.raises(ValueError, match="top_p"):
            next(client.completions_v1("letters", "hi", top_p=0, stream=stream))
    with pytest.raises(OSError, match="refused"):
        APIClient(f"127.0.0.1:{free_port()}").available_models  # noqa: B018
    with pytest.raises(AssertionError, match="other than -1"):
        client.chat("hi", -1)


def test_signatures():
    def signature(name):
        return str(inspect.signature(getattr(APIClient, name)).replace(return_annotation=inspect.Signature.empty))
    for name, wanted in {
        "chat_completions_v1": "temperature=0.7, top_p=1, n=1, max_tokens=None, stop=None, stream=False, "
                               "presence_penalty=0.0, frequency_penalty=0.0, user=None, repetition_penalty=1.0, "
                               "session_id=-1, ignore_eos=False, skip_special_tokens=True",
        "completions_v1": "suffix=None, temperature=0.7, n=1, max_tokens=16, stream=False, stop=None, top_p=1.0, "
                          "top_k=40",
        "chat_interactive_v1": "image_url=None, session_id=-1, interactive_mode=False, stream=False, stop=None, "
                               "request_output_len=None, top_p=0.8, top_k=40, temperature=0.8, repetition_penalty=1.0, "
                               "ignore_eos=False, skip_special_tokens=True",
    }.items():
        parameters = inspect.signature(getattr(APIClient, name)).parameters.values()
        shown = ", ".join(f"{one.name}={one.default!r}" for one in parameters if one.default is not one.empty)
        assert shown.startswith(wanted), signature(name)


def test_serve(alphabet_path, capfd):
    port = free_port()
    config = lmdeploy.TurbomindEngineConfig(session_len=64, max_batch_size=2, num_threads=1, cache_block_seq_len=16)
    client = lmdeploy.serve(alphabet_path, model_name="m", backend_config=config, server_name="127.0.0.1",
                            server_port=port, api_keys=["k"], max_concurrent_requests=2,
                            chat_template_config=lmdeploy.ChatTemplateConfig("internlm2"))
    try:
        assert str(client.process.pid) in capfd.readouterr().out
        assert client.available_models == ["m"]
        answer = next(client.completions_v1("m", "a", temperature=0, ignore_eos=True, max_tokens=1000))
        assert answer["usage"]["total_tokens"] == 64
    finally:
        client.process.terminate()
        assert client.process.wait() == 0
    assert lmdeploy.serve.openai.api_client.APIClient is APIClient  # still a package


def test_serve_says_why_there_is_no_server(tmp_path, capfd):
    with pytest.raises(lmdeploy.LmdeployError, match="code 1"):
        lmdeploy.serve(str(tmp_path / "none"), server_name="127.0.0.1", server_port=free_port())
    assert "none" in capfd.readouterr().err
    with pytest.raises(lmdeploy.LmdeployError, match="code 2"):
        lmdeploy.serve(str(tmp_path), server_name="127.0.0.1", server_port=free_port(), no_such_flag=1)
    with pytest.raises(NotImplementedError, match="dp=2"):
        lmdeploy.serve(str(tmp_path), backend_config=lmdeploy.TurbomindEngineConfig(dp=2))


@pytest.mark.parametrize("keys", ["", " ", "k,", ["k", ""], [None]])
def test_serve_refuses_empty_keys(tmp_path, keys):
    with pytest.raises(ValueError, match="api_keys: a key is empty"):
        lmdeploy.serve(str(tmp_path), server_name="127.0.0.1", server_port=free_port(), api_keys=keys)


class _Healthy(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):  # noqa: N802
        self.send_response(200)
        self.end_headers()


def test_serve_does_not_take_another_server_for_its_own(alphabet_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Healthy) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        port = other.server_address[1]
        with pytest.raises(lmdeploy.LmdeployError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            lmdeploy.serve(alphabet_path, server_name="127.0.0.1", server_port=port)
        other.shutdown()


def test_the_server_of_serve_ends_with_the_program(alphabet_path):
    port = free_port()
    code = (f"import lmdeploy; client = lmdeploy.serve({alphabet_path!r}, server_name='127.0.0.1', server_port={port}, "
            "session_len=64); print(client.available_models)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)
    with pytest.raises(OSError, match="refused"):
        get_model_list(f"http://127.0.0.1:{port}/v1/models")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_server_of_serve_ends_with_a_program_that_is_killed(alphabet_path, number):
    port = free_port()
    code = (f"import lmdeploy, time; client = lmdeploy.serve({alphabet_path!r}, server_name='127.0.0.1', "
            f"server_port={port}, session_len=64); print('it runs', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as program:
        assert any(line == "it runs\n" for line in program.stdout)
        program.send_signal(number)
    end = time.monotonic() + 10
    with pytest.raises(OSError, match="refused"):
        while time.monotonic() < end:
            socket.create_connection(("127.0.0.1", port)).close()
            time.sleep(0.05)
