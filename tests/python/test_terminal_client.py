"""`lmdeploy serve api_client`: the conversation in the terminal with a server's model."""
import http.server
import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from api_server import api_server, free_port
from lmdeploy.__main__ import find_program

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def talk(url: str, text: str, *flags: str, command=None) -> subprocess.CompletedProcess:
    command = command or [str(find_program()), "serve", "api_client"]
    return subprocess.run([*command, url, *flags], input=text, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--api-keys", "k", "--session-len", "256", "--num-threads", "1",
                    "--allow-terminate-by-client") as started:
        yield started


def sessions(server) -> float:
    page = server.request("GET", "/metrics", headers={"Authorization": "Bearer k"}).body.decode()
    return float(next(line for line in page.splitlines() if line.startswith("lmdeploy:num_sessions{")).split()[-1])


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "127.0.0.1:{port}", "http://127.0.0.1:{port}/"])
def test_a_conversation(server, url):
    done = talk(url.format(port=server.port), "hi\nyou\n\n\n\nend\n\nhi\n\nexit\n\nnever read\n\n", "--api-key", "k",
                "--session-id", "7")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count(LETTERS) == 2 and done.stdout.endswith("exiting...\n")
    assert sessions(server) == 0


def test_the_older_module_is_the_same_program(server):
    done = talk(server.url, "hi\n\nexit\n\n", "--api-key", "k",
                command=[sys.executable, "-m", "lmdeploy.serve.openai.api_client"])
    assert done.returncode == 0 and LETTERS in done.stdout


def test_refusals_are_printed_and_the_conversation_goes_on(server):
    done = talk(server.url, "hi\n\nhi\n\n", "--api-key", "wrong")
    assert done.returncode == 0 and done.stderr.count("status 401: Please request with valid api key!") == 2


@pytest.mark.parametrize("url, words", [(f"127.0.0.1:{free_port()}", "does not answer"), ("ftp://host", "http://HOST"),
                                        ("http://", "http://HOST")])
def test_no_server(url, words):
    done = talk(url, "hi\n\n")
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1


class OtherServer(http.server.BaseHTTPRequestHandler):
    """A server of another make: it streams chats, keeps no sessions, and answers "bad" with a stream that breaks off."""

    protocol_version = "HTTP/1.1"
    seen: list[list[dict]] = []

    def log_message(self, *args):
        pass

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # noqa: N802
        self._send(200, json.dumps({"data": [{"id": "other"}]}).encode(), "application/json")

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self._send(404, b'{"detail":"Not Found"}', "application/json")
            return
        assert body["model"] == "other" and body["stream"] is True
        self.seen.append(body["messages"])
        said = body["messages"][-1]["content"]
        pieces = [{"role": "assistant"}, {"content": "you said "}, {"content": said + " \N{SNOWMAN}"}, {}]
        events = [{"choices": [{"index": 0, "delta": delta}]} for delta in pieces]
        if said == "bad":
            events.insert(2, {"error": {"message": "out of snow"}})
        text = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events) + "data: [DONE]\n\n"
        self._send(200, text.encode(), "text/event-stream")


def test_a_server_that_keeps_no_sessions():
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherServer)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        done = talk(f"127.0.0.1:{other.server_address[1]}", "one\n\nbad\n\ntwo\n\nend\n\nthree\n\nexit\n\n")
    finally:
        other.shutdown()
        other.server_close()
    assert done.returncode == 0 and "you said one \N{SNOWMAN}" in done.stdout and "out of snow" in done.stderr
    roles = [[message["role"] for message in messages] for messages in OtherServer.seen]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user"], ["user"]]
    assert OtherServer.seen[2][1]["content"] == "you said one \N{SNOWMAN}"


def test_ctrl_c_stops_an_answer_only(endless_path, tmp_path):
    with api_server(endless_path, tmp_path / "log", "--session-len", "60000", "--num-threads", "1", "--max-batch-size",
                    "1") as server:
        load = server.begin_stream("/v1/completions", prompt="a", max_tokens=50000, ignore_eos=True,
                                   temperature=0)  # so that answers wait
        load.read_events(1)
        client = subprocess.Popen([str(find_program()), "serve", "api_client", server.url], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        client.stdin.write("hi\n\n")
        client.stdin.flush()
        server.wait_until(lambda values: values["num_requests_waiting"] == 1)
        begun = time.monotonic()
        client.send_signal(signal.SIGINT)
        server.wait_until(lambda values: values["num_requests_waiting"] == 0)
        assert time.monotonic() - begun < 5
        load.drop()
        out, err = client.communicate("hi\n\nexit\n\n", timeout=30)
        assert client.returncode == 0 and err == "" and LETTERS * 19 in out
