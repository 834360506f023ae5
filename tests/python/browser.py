"""A headless Chromium that may reach this machine only, and what its pages complained about."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field

import pytest

from lmdeploy.__main__ import find_program

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the pages are not tested")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCREENSHOTS = os.environ.get("LMDEPLOY_SCREENSHOTS")  # a folder to keep them in
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


@contextlib.contextmanager
def api_server(model, *flags, program="serve api_server"):
    """The URL of a server on a free port that has loaded `model`."""
    command = [str(find_program()), *program.split(), str(model), "--server-name", "127.0.0.1", "--server-port", "0",
               *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = next((line for line in process.stdout if "HINT" in line), "")
        found = re.search(r"https?://127\.0\.0\.1:\d+", line)
        assert found, f"the server ended with code {process.wait(10)} before it was ready"
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@contextlib.contextmanager
def chromium():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: the pages are not tested")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])
        yield browser
        browser.close()


@dataclass
class Tab:
    page: "playwright.Page"
    url: str
    folder: pathlib.Path
    allowed: list[str] = field(default_factory=list)  # parts of console errors that the test provokes
    console: list[str] = field(default_factory=list)
    requests: list["playwright.Request"] = field(default_factory=list)

    def open(self, path):
        self.page.goto(self.url + path)
        return self.page

    def shot(self, name):
        self.page.wait_for_timeout(120)  # for the last frame
        self.page.screenshot(path=self.folder / f"{name}.png")

    def check(self):
        """Nothing but this server was asked, and nothing went wrong unseen."""
        foreign = [request.url for request in self.requests
                   if not request.url.startswith((self.url + "/", "data:", "blob:" + self.url))
                   and request.failure != "csp"]
        assert foreign == []
        assert [text for text in self.console if not any(part in text for part in self.allowed)] == []


@contextlib.contextmanager
def tab(browser, url, folder, viewport=None, **context_options):
    context = browser.new_context(viewport=viewport or DESKTOP, permissions=["clipboard-read", "clipboard-write"],
                                  **context_options)
    opened = Tab(context.new_page(), url, pathlib.Path(SCREENSHOTS or folder))
    opened.folder.mkdir(parents=True, exist_ok=True)
    opened.page.set_default_timeout(15000)
    opened.page.on("console", lambda message: opened.console.append(message.text)
                   if message.type in ("error", "warning") else None)
    opened.page.on("pageerror", lambda error: opened.console.append(f"uncaught: {error}"))
    opened.page.on("request", lambda request: opened.requests.append(request))
    yield opened
    context.close()
    opened.check()
