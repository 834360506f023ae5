"""The native command `lmdeploy serve gradio`: it becomes the page's program, which answers and ends when told."""
import signal
import subprocess
import time
import urllib.request

import pytest
from api_server import free_port

from lmdeploy.__main__ import find_program

START_SECONDS = 120  # importing gradio alone takes many


def test_the_page_comes_and_the_signal_ends_it(alphabet_path, tmp_path):
    pytest.importorskip("gradio", reason="gradio is not installed: lmdeploy serve gradio is not started")
    port = free_port()
    log = tmp_path / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([str(find_program()), "serve", "gradio", alphabet_path, "--server-name", "127.0.0.1",
                                    "--server-port", str(port)], stdout=out, stderr=subprocess.STDOUT)
    try:
        page = await_page(process, f"http://127.0.0.1:{port}/", log)
        assert "gradio" in page
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def await_page(process, url: str, log) -> str:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return reply.read().decode()
        except OSError:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
