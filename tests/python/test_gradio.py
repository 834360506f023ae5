"""lmdeploy serve gradio, with a model in its process and in front of a server; the page in a real browser."""
import contextlib
import itertools
import socket
import threading
import time

import pytest

from browser import api_server, chromium, playwright, tab
from lmdeploy.errors import InvalidArgumentError
from lmdeploy.serve.gradio import app, backends

gradio = pytest.importorskip("gradio", reason="gradio is not installed: its page is not tested")
from lmdeploy.serve.gradio import page as gradio_page  # noqa: E402

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
QUESTION = [{"role": "user", "content": "hello"}]
expect = playwright.expect


@pytest.fixture(scope="module")
def server(alphabet_path):
    with api_server(alphabet_path, "--model-name", "alphabet", "--api-keys", "secret", "--session-len", "512") as url:
        yield url


@pytest.mark.parametrize(("path", "served", "url"), [
    ("http://host:1", True, "http://host:1"), ("https://host/", True, "https://host"),
    ("0.0.0.0:23333", True, "http://127.0.0.1:23333"), ("http://host:1/v1", True, "http://host:1"),
    ("./model", False, None), ("org/name", False, None), ("/data/a:1", False, None), ("model", False, None)])
def test_addresses_and_paths_are_told_apart(path, served, url):
    assert backends.is_server(path) is served
    if served:
        assert backends.server_url(path) == url


def test_a_model_and_a_server_answer_alike(pipe, server):
    settings = backends.Settings(max_new_tokens=5)
    for backend in (backends.ModelBackend(pipe), backends.ServerBackend(server, "secret")):
        assert "".join(backend.stream(QUESTION, settings)) == "abcde"
    raw = backends.ModelBackend(pipe, "completion")
    assert "".join(raw.stream([{"role": "user", "content": "x"}], settings)) == "yz"


def test_a_server_that_refuses_is_quoted(server):
    with pytest.raises(InvalidArgumentError, match="401: Please request with valid api key"):
        backends.ServerBackend(server)
    backend = backends.ServerBackend(server, "secret", model_name="other")
    with pytest.raises(InvalidArgumentError, match="404: The model 'other' does not exist"):
        list(backend.stream(QUESTION, backends.Settings()))


def free_port():
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_bad_command_lines_end_with_one_line(capsys, tmp_path, server):
    port = free_port()
    for arguments, message in [([f"127.0.0.1:{port}"], "does not answer as an api_server does"),
                               ([str(tmp_path / "none")], str(tmp_path / "none")),
                               ([server], "401"),
                               ([server, "--session_len", "5"], "--session-len is for a model in this process")]:
        assert app.main([*arguments, "--server-port", str(port)]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error


def test_a_cancel_is_heard_while_a_piece_is_waited_for():
    closed, cancelled = threading.Event(), threading.Event()

    def stream():
        try:
            yield "one"
            closed.wait(30)
            yield "two"
        finally:
            closed.set()

    pieces = gradio_page.until_cancelled(stream(), cancelled)
    assert next(pieces) == "one"
    threading.Timer(0.2, cancelled.set).start()
    assert list(pieces) == []
    assert not closed.is_set()
    closed.set()


@contextlib.contextmanager
def launched(backend):
    port = free_port()
    gradio_page.launch(backend, "127.0.0.1", port, instruction="Be brief.", block=False)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        gradio.close_all()


class SlowBackend(backends.ModelBackend):
    """Slow enough to be cancelled by hand; ``ended`` is set when an answer is over, for whatever reason."""
    ended = threading.Event()

    def stream(self, messages, settings):
        try:
            for letter in itertools.chain.from_iterable(super().stream(messages, settings)):
                time.sleep(0.03)
                yield letter
        finally:
            self.ended.set()


def ask(page, text):
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


def test_the_page_answers_cancels_and_resets(endless, tmp_path):
    with chromium() as browser, launched(SlowBackend(endless)) as url:
        with tab(browser, url, tmp_path) as opened:
            page = opened.open("/")
            expect(page.get_by_label("Instruction")).to_have_value("Be brief.")
            for slider, value in (("Maximum new tokens", "512"), ("Top_p", "0.8"), ("Temperature", "0.7")):
                expect(page.get_by_role("spinbutton", name=slider)).to_have_value(value)
            page.get_by_role("spinbutton", name="Maximum new tokens").fill("2048")
            opened.allowed.append("img-src 'self'")  # the picture is refused, and nothing of it is run
            ask(page, "<img src=https://example.org/x onerror=window.hacked=1><script>window.hacked=1</script>")
            answer = page.locator(".bot.message, .message.bot").last
            expect(answer).to_contain_text(ALPHABET, timeout=20000)
            page.get_by_role("button", name="Cancel").click()
            assert SlowBackend.ended.wait(10)
            page.wait_for_timeout(500)  # for pieces that are on their way
            assert 26 <= len(answer.inner_text()) < 2000
            assert page.evaluate("window.hacked") is None
            opened.shot("gradio")
            page.get_by_role("button", name="Reset", exact=True).click()
            expect(answer).to_have_count(0)


def test_the_page_in_front_of_a_server(server, tmp_path):
    with chromium() as browser, launched(backends.ServerBackend(server, "secret")) as url:
        with tab(browser, url, tmp_path) as opened:
            page = opened.open("/")
            ask(page, "hello")
            expect(page.locator(".bot.message, .message.bot").last).to_contain_text(ALPHABET, timeout=20000)
            opened.shot("gradio-server")
