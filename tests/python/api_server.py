"""`lmdeploy serve api_server` as a process of a test, and small ways to ask it."""
import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

from lmdeploy.__main__ import find_program

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class ApiServer:
    """Listens on a free port of 127.0.0.1 when the constructor returns, and with `wait` is ready."""

    def __init__(self, model: str, log: pathlib.Path, *flags: str, wait: bool = True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [str(find_program()), "serve", "api_server", model, "--server-name", "127.0.0.1", "--server-port",
                 str(self.port), *flags], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self._wait(lambda: self.health() == 200 if wait else self.health() is not None)

    def _wait(self, ready) -> None:
        until = time.monotonic() + START_SECONDS
        while not ready():
            code = self.process.poll()
            if code is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"the server is not ready (exit code {code}):\n{self.output()}")
            time.sleep(0.02)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def health(self) -> int | None:
        """The status, None where nobody listens."""
        try:
            return self.request("GET", "/health").status
        except OSError:
            return None

    def request(self, method: str, path: str, body=None, headers: dict | None = None) -> "Answer":
        """`body`: text and bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            given = dict(headers or {})
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            if body is not None:
                given.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, given)
            reply = connection.getresponse()
            return Answer(reply.status, dict(reply.getheaders()), reply.read())

    def post(self, path: str, **fields) -> "Answer":
        return self.request("POST", path, fields)

    def events(self, path: str, **fields) -> list[str]:
        """What stands after `data: ` in each event of a stream, whose connection stays usable."""
        answer = self.post(path, stream=True, **fields)
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        *lines, end = answer.body.decode().split("\n\n")
        assert end == "" and all(line.startswith("data: ") for line in lines)
        return [line.removeprefix("data: ") for line in lines]

    def begin_stream(self, path: str, **fields) -> "OpenStream":
        return OpenStream(self.port, path, {**fields, "stream": True})

    def metrics(self) -> dict[str, float]:
        """Values without labels of their own: num_requests_running, ..."""
        page = self.request("GET", "/metrics").body.decode()
        return {name: float(value) for name, value in
                re.findall(r'^lmdeploy:(\w+)\{model_name="[^"]*",engine="0"\} (\S+)$', page, re.MULTILINE)}

    def ended(self, reason: str) -> int:
        page = self.request("GET", "/metrics").body.decode()
        return int(re.search(rf'request_success_total\{{.*finished_reason="{reason}"\}} (\d+)', page)[1])

    def wait_until(self, holds, seconds: float = 10) -> None:
        """Until `holds(metrics)`; shows them when that does not come."""
        until = time.monotonic() + seconds
        while not holds(values := self.metrics()):
            assert time.monotonic() < until, values
            time.sleep(0.01)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30) -> int:
        """The exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends the server and sees that it ended well."""
        if self.process.poll() is None:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        else:
            code = self.process.returncode
        assert code == 0, f"exit code {code}:\n{self.output()}"


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self) -> dict:
        """The error object, whose form is checked."""
        body = self.json()
        if body.get("type") == "error":  # Anthropic's, under its paths
            assert set(body) == {"type", "error"} and set(body["error"]) == {"type", "message"}, body
            return body["error"]
        assert body["object"] == "error" and body["code"] == self.status, body
        assert set(body["error"]) == {"message", "type", "param", "code"} and body["error"]["message"], body
        return body["error"]


class OpenStream:
    """A request whose answer is read by hand."""

    def __init__(self, port: int, path: str, fields: dict):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        body = json.dumps(fields).encode()
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
        self.received = b""

    def read_events(self, count: int) -> None:
        while self.received.count(b"data: ") < count:
            self.receive()

    def status(self) -> int:
        while b"\r\n" not in self.received:
            self.receive()
        return int(self.received.split(b" ", 2)[1])

    def read_all(self) -> bytes:
        while not self.received.endswith(b"0\r\n\r\n"):
            self.receive()
        return self.received

    def receive(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection was closed after {self.received[-300:]!r}"
        self.received += data

    def drop(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def api_server(model: str, log: pathlib.Path, *flags: str, wait: bool = True):
    server = ApiServer(model, log, *flags, wait=wait)
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    server.close()
