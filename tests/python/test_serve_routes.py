"""`lmdeploy serve api_server` seen from outside: every route, bad requests, keys, clients that leave, limits, signals."""
import json
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from api_server import ApiServer, api_server

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HELLO = [{"role": "user", "content": "hi"}]
ENDLESS = {"prompt": "a", "max_tokens": 50000, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--model-name", "letters", "--session-len", "256", "--num-threads", "1",
                    "--enable-abort-handling") as started:
        yield started


@pytest.fixture
def endless_server(endless_path, tmp_path):
    """Starts servers whose answers never end."""
    started: list[ApiServer] = []

    def start(*flags):
        started.append(ApiServer(endless_path, tmp_path / f"log{len(started)}", "--num-threads", "1", *flags))
        return started[-1]

    yield start
    for one in started:
        one.kill()


CURL = {
    ("GET", "/v1/models"): (None, '"letters"'),
    ("GET", "/v1/models/{model}"): (None, '"id":"letters"'),
    ("POST", "/v1/chat/completions"): ({"messages": HELLO, "temperature": 0}, LETTERS),
    ("POST", "/v1/completions"): ({"prompt": "w", "temperature": 0}, '"xyz"'),
    ("POST", "/v1/embeddings"): ({"input": "a"}, "Unsupported by turbomind."),
    ("POST", "/v1/encode"): ({"input": "hi"}, '{"input_ids":[104,105],"length":2}'),
    ("POST", "/v1/decode"): ({"ids": [104, 105]}, '{"text":"hi"}'),
    ("POST", "/v1/render"): ({"messages": HELLO}, "<|im_start|>user\\nhi<|im_end|>"),
    ("POST", "/v1/chat/interactive"): ({"prompt": "hi", "temperature": 0, "top_k": 1}, LETTERS),
    ("POST", "/v1/responses"): ({"input": "hi", "temperature": 0}, LETTERS),
    ("POST", "/v1/messages"): ({"messages": HELLO, "max_tokens": 99, "temperature": 0}, LETTERS),
    ("POST", "/v1/messages/count_tokens"): ({"messages": HELLO}, '{"input_tokens":'),
    ("GET", "/anthropic/v1/models"): (None, '"letters"'),
    ("GET", "/anthropic/v1/models/{model}"): (None, '"id":"letters"'),
    ("POST", "/update_weights"): ({}, '"code":501'),
    ("POST", "/distserve/p2p_initialize"): ({}, '"code":501'),
    ("POST", "/distserve/p2p_connect"): ({}, '"code":501'),
    ("POST", "/distserve/p2p_drop_connect"): ({}, '"code":501'),
    ("POST", "/distserve/free_cache"): ({}, '"code":501'),
    ("POST", "/generate"): ({"input_ids": [119], "temperature": 0}, '"output_ids":[120,121,122]'),
    ("POST", "/get_ppl"): ({"input": "abc"}, '{"ppl":'),
    ("POST", "/pooling"): ({"input": "abc"}, "reward model"),
    ("GET", "/health"): (None, '"healthy"'),
    ("GET", "/metrics"): (None, "lmdeploy:num_requests_running"),
    ("GET", "/is_sleeping"): (None, '{"is_sleeping":false}'),
    ("GET", "/terminate"): (None, "--allow-terminate-by-client"),
    ("POST", "/abort_request"): ({"session_id": 1}, ""),
    ("GET", "/distserve/engine_info"): (None, '"code":501'),
    ("GET", "/openapi.json"): (None, '"openapi":"3.1.0"'),
}


def test_no_route_is_forgotten(server):
    paths = server.request("GET", "/openapi.json").json()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described - set(CURL) == {("POST", "/sleep"), ("POST", "/wakeup")}


@pytest.mark.parametrize("route", CURL, ids=" ".join)
def test_curl(server, route):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    body, wanted = CURL[route]
    url = server.url + route[1].replace("{model}", "letters")
    command = ["curl", "--silent", "--show-error", "--max-time", "30", "-X", route[0], url, "-H",
               "anthropic-version: 2023-06-01"]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    assert wanted in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_curl_reads_a_stream(server):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"prompt": "w", "stream": True, "temperature": 0})
    done = subprocess.run(["curl", "-sSN", "--max-time", "30", server.url + "/v1/completions", "-H",
                           "Content-Type: application/json", "-d", body], check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"


POST_ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/encode", "/v1/decode", "/v1/render", "/generate",
               "/v1/chat/interactive", "/get_ppl", "/abort_request", "/v1/responses"]


@pytest.mark.parametrize("path", POST_ROUTES)
@pytest.mark.parametrize("body", ['{"model":', "[]", "null", '"x"', "3", "", "\xff", '{"a":1}}', "{" * 100_000])
def test_f69_bodies_that_are_no_request(server, path, body):
    answer = server.request("POST", path, body.encode("latin-1"))
    assert answer.status == 400 and answer.headers["Content-Type"] == "application/json"
    answer.error()


def test_f69_the_rest(server):
    cases = [("POST", "/v1/chat/completions", {"messages": 3}, {}, 400),
             ("POST", "/v1/chat/completions", {"messages": HELLO}, {"Content-Type": "text/plain"}, 415),
             ("GET", "/v1/chat/completions", None, {}, 405), ("POST", "/v1/models", {}, {}, 405),
             ("DELETE", "/health", None, {}, 405), ("GET", "/v1/nothing", None, {}, 404),
             ("GET", "/v1/models/", None, {}, 404), ("POST", "/", {}, {}, 405)]
    for method, path, body, headers, status in cases:
        answer = server.request(method, path, body, headers)
        assert answer.status == status, (method, path, answer.body)
        answer.error()
        assert (status == 405) == ("Allow" in answer.headers)
    assert server.metrics()["num_requests_failed"] == 0


MISTAKES = [
    ({"messages": []}, "messages"), ({"messages": [3]}, "messages[0]"), ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 3, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type"),
    ({"tools": [3]}, "tools[0]"), ({"tools": [{"type": "function", "function": {"name": 3}}]}, "tools[0].function.name"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"), ({"stop": 3}, "stop"),
    ({"n": 129}, "n"), ({"n": 1.5}, "n"), ({"top_k": -2}, "top_k"), ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": True}, "max_tokens"), ({"seed": "a"}, "seed"),
    ({"repetition_penalty": 0}, "repetition_penalty"), ({"stream": "yes"}, "stream"), ({"model": 3}, "model"),
    ({"logit_bias": [1]}, "logit_bias"), ({"response_format": {}}, "response_format"), ({"user": 3}, "user"),
    ({"input_ids": [1]}, "messages"), ({"reasoning_effort": "very"}, "reasoning_effort"),
]


@pytest.mark.parametrize("fields, param", MISTAKES, ids=lambda value: json.dumps(value)[:40])
def test_f69_a_mistake_names_its_field(server, fields, param):
    answer = server.post("/v1/chat/completions", **{"messages": HELLO, **fields})
    assert answer.status == 400 and answer.error()["param"] == param, answer.body


def test_ids_instead_of_messages(server):
    answer = server.post("/v1/chat/completions", input_ids=[119], temperature=0).json()
    assert answer["choices"][0]["message"]["content"] == "xyz" and answer["usage"]["prompt_tokens"] == 1


@pytest.fixture(scope="module")
def locked(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--api-keys", "k1", "k2", "--session-len", "64", "--num-threads", "1",
                    "--log-level", "DEBUG") as started:
        yield started


def test_f70_keys_protect_every_route(locked):
    paths = locked.request("GET", "/openapi.json").json()["paths"]
    refused = 0
    for path, operations in paths.items():
        if path in ("/health", "/openapi.json"):
            continue
        for method in operations:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "},
                            {"Authorization": "k1"}, {"Authorization": "Bearer k1k1"}, {"x-api-key": "k"}):
                answer = locked.request(method.upper(), path, {} if method == "post" else None, headers)
                assert answer.status == 401 and answer.headers["WWW-Authenticate"], (method, path, headers)
                answer.error()
                refused += 1
    assert refused > 100
    assert locked.request("GET", "/no/such/route").status == 401


def test_f70_either_key_opens(locked):
    for headers in ({"Authorization": "Bearer k1"}, {"Authorization": "Bearer k2"}, {"Authorization": "bearer k1"},
                    {"x-api-key": "k2"}):
        assert locked.request("GET", "/v1/models", headers=headers).status == 200
        assert locked.request("GET", "/metrics", headers=headers).status == 200
        assert locked.request("POST", "/v1/encode", {"input": "a"}, headers).status == 200
    assert locked.health() == 200
    asked = locked.request("OPTIONS", "/v1/chat/completions", headers={
        "Origin": "http://page", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type"})
    assert asked.status in (200, 204) and asked.headers["Access-Control-Allow-Origin"]
    assert "k1" not in locked.output() and "k2" not in locked.output()


def test_f70_metrics_may_be_open(alphabet_path, tmp_path):
    with api_server(alphabet_path, tmp_path / "log", "--api-keys", "k1", "--open-metrics", "--session-len",
                    "64") as server:
        assert server.metrics()["num_requests_running"] == 0
        assert server.request("GET", "/v1/models").status == 401


@pytest.mark.parametrize("path, fields", [("/v1/chat/completions", {"messages": HELLO}),
                                          ("/v1/completions", {"prompt": ["a", "b"]}), ("/generate", {"prompt": "a"})])
def test_f29_streams_end(server, path, fields):
    for limits in ({}, {"max_tokens": 3}):
        *events, done = server.events(path, temperature=0, **fields, **limits)
        assert done == "[DONE]"
        last = json.loads(events[-1])
        assert last["choices"][0]["finish_reason"] if "choices" in last else last["meta_info"]["finish_reason"]
    answer = server.post(path, stream=True, top_p=5, **fields)
    assert answer.status == 400 and answer.headers["Content-Type"] == "application/json"


def test_f29_a_stream_that_is_aborted_ends(endless_server):
    server = endless_server("--session-len", "60000", "--enable-abort-handling")
    stream = server.begin_stream("/v1/completions", session_id=7, **ENDLESS)
    stream.read_events(3)
    assert server.post("/v1/completions", session_id=7, prompt="a").error()["message"].endswith("is occupied.")
    assert server.post("/abort_request", session_id=7).status == 200
    answer = stream.read_all()
    assert b'"finish_reason":"abort"' in answer and b"data: [DONE]\n\n" in answer


def test_f53_clients_that_go_away(endless_server):
    server = endless_server("--session-len", "60000", "--max-batch-size", "1")
    before = server.metrics()
    for i in range(50):
        begun = time.monotonic()
        stream = server.begin_stream("/v1/completions", **ENDLESS)
        stream.read_events(3)
        assert time.monotonic() - begun < 5
        if i % 5 == 0:  # one that waits in the engine's queue, and one without stream
            waiting = server.begin_stream("/v1/completions", **ENDLESS)
            waiting.drop()
        stream.drop()
    whole = server.begin_stream("/v1/completions", **ENDLESS)
    whole.drop()
    # The last request may arrive only now: what counts is that everything comes back.
    server.wait_until(lambda values: values["num_requests_running"] == values["num_requests_waiting"] ==
                      values["num_used_blocks"] == values["num_api_requests_routed"] == 0 and
                      values["num_free_blocks"] + values["num_cached_blocks"] == before["num_free_blocks"])
    assert server.ended("abort") >= 50
    assert server.post("/v1/completions", prompt="a", max_tokens=2).status == 200


def test_f54_many_streams_of_a_killed_client(endless_server):
    server = endless_server("--session-len", "2000", "--max-batch-size", "16")
    for _ in range(2):
        streams = [server.begin_stream("/v1/completions", **ENDLESS) for _ in range(60)]
        streams[0].read_events(1)
        for stream in streams:
            stream.drop()
    begun = time.monotonic()
    assert server.post("/v1/completions", prompt="a", max_tokens=2).status == 200
    assert time.monotonic() - begun < 5
    server.wait_until(lambda values: values["num_requests_running"] == values["num_requests_waiting"] == 0)


def test_f55_the_queue_is_bounded(endless_server):
    server = endless_server("--session-len", "60000", "--max-concurrent-requests", "2", "--max-waiting-requests", "3")
    running = [server.begin_stream("/v1/completions", **ENDLESS) for _ in range(2)]
    for stream in running:
        stream.read_events(1)
    waiting = [server.begin_stream("/v1/completions", **{**ENDLESS, "max_tokens": 2}) for _ in range(3)]
    server.wait_until(lambda values: values["num_api_requests_waiting"] == 3)
    for _ in range(5):
        answer = server.post("/v1/completions", prompt="a")
        assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0
        assert answer.error()["code"] == "queue_full"
    assert server.metrics()["num_requests_refused_total"] == 5
    for stream in running:
        stream.drop()
    for stream in waiting:
        assert stream.status() == 200 and b"[DONE]" in stream.read_all()


def test_f55_waiting_has_its_limit(endless_server):
    server = endless_server("--session-len", "60000", "--max-concurrent-requests", "1", "--queue-timeout", "1")
    stream = server.begin_stream("/v1/completions", **ENDLESS)
    stream.read_events(1)
    begun = time.monotonic()
    answer = server.post("/v1/completions", prompt="a")
    assert answer.status == 503 and answer.error()["code"] == "queue_timeout"
    assert 0.9 < time.monotonic() - begun < 3
    stream.drop()


def test_f71_health_answers_under_load(endless_server):
    server = endless_server("--session-len", "60000", "--max-batch-size", "8")
    streams = [server.begin_stream("/v1/completions", **ENDLESS) for _ in range(12)]
    streams[0].read_events(1)
    assert server.health() == 200
    for stream in streams:
        stream.drop()


def exit_code_while_streaming(server: ApiServer, number: int) -> int:
    stream = server.begin_stream("/v1/completions", **ENDLESS)
    stream.read_events(2)
    reader = threading.Thread(target=_read_to_the_end, args=(stream.socket,))
    reader.start()
    code = server.stop(number, seconds=20)
    reader.join()
    return code


def _read_to_the_end(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


def test_f74_sigterm_lets_requests_end(endless_server):
    server = endless_server("--session-len", "3000")
    stream = server.begin_stream("/v1/completions", **{**ENDLESS, "max_tokens": 2000})
    stream.read_events(2)
    server.process.send_signal(signal.SIGTERM)
    assert b'"finish_reason":"length"' in stream.read_all()
    assert server.process.wait(20) == 0
    with pytest.raises(OSError):
        server.request("GET", "/health")


def test_f74_a_drain_has_its_limit(endless_server):
    server = endless_server("--session-len", "1000000", "--shutdown-timeout", "0", "--cache-max-entry-count", "16000")
    begun = time.monotonic()
    assert exit_code_while_streaming(server, signal.SIGTERM) == 0
    assert time.monotonic() - begun < 10
    assert "--shutdown-timeout" in server.output()


@pytest.mark.parametrize("busy", [False, True])
def test_f74_ctrl_c(endless_server, busy):
    server = endless_server("--session-len", "3000", "--shutdown-timeout", "1")
    if busy:
        assert exit_code_while_streaming(server, signal.SIGINT) == 130
    else:
        assert server.stop(signal.SIGINT, seconds=5) == 130


def test_f74_a_second_ctrl_c_is_immediate(endless_server):
    server = endless_server("--session-len", "1000000", "--shutdown-timeout", "100", "--cache-max-entry-count", "16000")
    stream = server.begin_stream("/v1/completions", **{**ENDLESS, "max_tokens": 900000})
    stream.read_events(2)
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    begun = time.monotonic()
    assert server.stop(signal.SIGINT, seconds=5) == 130
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_f74_a_signal_while_loading(demo_model, tmp_path, number, code):
    server = ApiServer(demo_model, tmp_path / "log", wait=False)
    try:
        status = server.request("POST", "/v1/completions", {"prompt": "a"})
        if status.status == 503:
            assert status.error()["code"] == "loading" and "Retry-After" in status.headers
        assert server.stop(number, seconds=5) == code
    finally:
        server.kill()


def test_f74_a_busy_port_is_named_and_free_at_once_afterwards(alphabet_path, tmp_path):
    server = ApiServer(alphabet_path, tmp_path / "log", "--session-len", "64")
    command = [str(part) for part in server.process.args]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1 and str(server.port) in second.stderr
    server.kill()
    third = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while server.health() != 200:
            assert third.poll() is None and time.monotonic() < until
            time.sleep(0.02)
    finally:
        third.kill()
        third.wait()


def test_terminate(alphabet_path, tmp_path):
    server = ApiServer(alphabet_path, tmp_path / "log", "--allow-terminate-by-client", "--session-len", "64")
    try:
        assert server.request("GET", "/terminate").status == 200
        assert server.process.wait(10) == 0
    finally:
        server.kill()


def test_a_body_over_the_limit(alphabet_path, tmp_path):
    with api_server(alphabet_path, tmp_path / "log", "--max-body-mib", "1", "--session-len", "64") as server:
        assert server.post("/v1/encode", input="a" * (2 << 20)).status == 413
        assert server.post("/v1/encode", input="a" * 1000).json()["length"] == 1000


def test_sessions_of_the_server(server):
    first = server.post("/v1/chat/interactive", prompt="hi", session_id=5, interactive_mode=True, temperature=0,
                        request_output_len=4).json()
    second = server.post("/v1/chat/interactive", prompt="hi", session_id=5, interactive_mode=True, temperature=0,
                         request_output_len=4).json()
    assert first["text"] == second["text"] == "abcd"
    assert second["history_tokens"] > first["history_tokens"] == 0
    ended = server.post("/v1/chat/interactive", prompt="", session_id=5, request_output_len=0).json()
    assert ended["text"] == "" and ended["finish_reason"] == "stop"
    assert server.metrics()["num_sessions"] == 0
    again = server.post("/v1/chat/interactive", prompt="hi", session_id=5, temperature=0, request_output_len=4).json()
    assert again["history_tokens"] == 0


@pytest.mark.parametrize("keep", [False, True])
def test_f53_a_conversation_whose_client_goes_away(endless_server, keep):
    server = endless_server("--session-len", "60000", "--max-batch-size", "1")
    fields = {"prompt": "a", "request_output_len": 50000, "ignore_eos": True, "temperature": 0}
    for session_id in range(1, 6):
        stream = server.begin_stream("/v1/chat/interactive", session_id=session_id, interactive_mode=keep, **fields)
        while stream.received.count(b"\n{") < 3:
            stream.receive()
        stream.drop()
    server.wait_until(lambda values: values["num_requests_running"] == 0 and
                      values["num_sessions"] == (5 if keep else 0))
    if keep:
        for session_id in range(1, 6):
            server.post("/v1/chat/interactive", prompt="", session_id=session_id, request_output_len=0)
    server.wait_until(lambda values: values["num_sessions"] == values["num_used_blocks"] == 0)


def test_ids_that_the_server_chooses_are_not_those_of_clients(endless_server):
    server = endless_server("--session-len", "60000")
    streams = [server.begin_stream("/v1/completions", **ENDLESS) for _ in range(4)]
    streams[-1].read_events(1)
    for session_id in range(12):
        answer = server.post("/v1/completions", prompt="a", max_tokens=1, session_id=session_id)
        assert answer.status == 200, answer.body
    assert server.metrics()["num_connections"] >= 4
    for stream in streams:
        stream.drop()


def test_request_ids_go_round(server):
    answer = server.request("POST", "/v1/encode", {"input": "a"}, {"x-request-id": "my-id"})
    assert {name.lower(): value for name, value in answer.headers.items()}["x-request-id"] == "my-id"
