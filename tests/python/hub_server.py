"""A stand-in for Hugging Face's hub on 127.0.0.1 that has one model, org/tiny."""
import hashlib
import http.server
import json
import os
import threading
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = (".safetensors", ".gguf")


def etag(name: str, content: bytes) -> str:
    if name.endswith(_LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer:
    """Serves the files of a folder. ``requests`` are "METHOD path" in order; ``hold`` keeps weights back half sent."""

    def __init__(self, folder):
        names = sorted(os.listdir(folder))
        self.files = {name: open(os.path.join(folder, name), "rb").read() for name in names}
        self.requests = []
        self.hold = None  # an Event: weights stop in the middle until it is set
        self.held = threading.Event()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_HEAD(self):
                hub._answer(self, with_body=False)

            def do_GET(self):
                hub._answer(self, with_body=True)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler, with_body):
        path = unquote(urlsplit(handler.path).path)
        self.requests.append(f"{handler.command} {path}")
        for revision in ("main", COMMIT):
            if path == f"/api/models/org/tiny/revision/{revision}":
                return self._send(handler, json.dumps(self._info()).encode(), {"Content-Type": "application/json"})
            start = f"/org/tiny/resolve/{revision}/"
            if path.startswith(start) and path[len(start):] in self.files:
                return self._send_file(handler, path[len(start):], with_body)
        handler.send_response(404)
        handler.send_header("X-Error-Code", "RepoNotFound")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _info(self):
        return {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "private": False, "tags": [], "downloads": 0,
                "likes": 0, "siblings": [{"rfilename": name} for name in self.files]}

    def _send_file(self, handler, name, with_body):
        content = self.files[name]
        headers = {"ETag": f'"{etag(name, content)}"', "X-Repo-Commit": COMMIT}
        if name.endswith(_LARGE):
            headers.update({"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(content))})
        begin = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        self._send(handler, content[begin:], headers, 206 if begin else 200, with_body, name.endswith(_LARGE))

    def _send(self, handler, body, headers, status=200, with_body=True, may_hold=False):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if not with_body:
            return
        if may_hold and self.hold is not None:
            half = len(body) // 2
            handler.wfile.write(body[:half])
            handler.wfile.flush()
            self.held.set()
            self.hold.wait()
            body = body[half:]
        try:
            handler.wfile.write(body)
        except OSError:  # the client has gone
            handler.close_connection = True
