"""The pages of the server in a real browser: Swagger UI, ReDoc and the chat page."""
import contextlib
import json
import re
import urllib.error
import urllib.request

import pytest

from browser import PHONE, api_server, chromium, playwright, tab

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
XSS = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>"
expect = playwright.expect


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(alphabet_path, browser):
    with api_server(alphabet_path, "--model-name", "alphabet", "--session-len", "2048") as url:
        yield url


@pytest.fixture(scope="module")
def keyed_server(alphabet_path, browser):
    with api_server(alphabet_path, "--model-name", "alphabet", "--api-keys", "secret", "--session-len", "512") as url:
        yield url


@pytest.fixture
def open_tab(browser, server, tmp_path):
    """open_tab(url, viewport=, ...): a tab that is checked for errors and foreign requests at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda url=server, **options: stack.enter_context(tab(browser, url, tmp_path, **options))


def sse(*chunks):
    return "".join(f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks)


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def script(page, content, reasoning=None, finish="stop"):
    """Answers of the chat route from now on: `content`, in pieces that cut words and marks."""
    pieces = [delta(reasoning_content=reasoning)] if reasoning else []
    pieces += [delta(content=content[i:i + 7]) for i in range(0, len(content), 7)]
    pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    pieces.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 42, "total_tokens": 45}})
    body = sse(*pieces, "[DONE]")
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions",
               lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))


def say(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def wait_for_answer(page):
    expect(page.locator("#send")).to_be_visible()
    return page.locator(".message.assistant").last


def sent_bodies(opened):
    return [request.post_data_json for request in opened.requests if request.url.endswith("/v1/chat/completions")]


def status_of(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


# --- the description

def test_swagger_ui_runs_a_request(open_tab):
    opened = open_tab()
    page = opened.open("/")
    block = page.locator("#operations-default-GET_v1_models, [id$=GET_v1_models]").first
    block.locator("button.opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    expect(block.locator(".live-responses-table")).to_contain_text('"id": "alphabet"')
    opened.shot("swagger")
    expect(page.locator(".opblock")).to_have_count(sum(len(path) for path in json.loads(
        page.request.get(opened.url + "/openapi.json").text())["paths"].values()))


def test_swagger_ui_asks_for_the_key(open_tab, keyed_server):
    opened = open_tab(keyed_server)
    opened.allowed.append("401")
    page = opened.open("/")
    block = page.locator("[id$=GET_v1_models]").first
    block.locator("button.opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    expect(block.locator(".live-responses-table")).to_contain_text("valid api key")
    page.get_by_role("button", name="Authorize").first.click()
    page.locator(".auth-container input").fill("secret")
    page.locator(".auth-container").get_by_role("button", name="Apply").click()
    page.locator(".modal-ux .close-modal").click()
    block.get_by_role("button", name="Execute").click()
    expect(block.locator(".live-responses-table")).to_contain_text('"id": "alphabet"')


def test_redoc_lists_the_routes(open_tab):
    opened = open_tab()
    page = opened.open("/redoc")
    expect(page.locator("[role=menuitem]", has_text="Answers a conversation").first).to_be_visible()
    page.locator("input[placeholder='Search...']").fill("token")
    expect(page.locator("[data-role='search:results']")).to_contain_text("Text to token ids")
    opened.shot("redoc")


def test_description_can_be_off(alphabet_path, browser):
    with api_server(alphabet_path, "--disable-fastapi-docs", "--session-len", "64") as url:
        for path in ("/", "/redoc", "/openapi.json", "/pages/swagger-ui.css"):
            assert status_of(url + path) == 404, path
        assert status_of(url + "/ui") == 200


def test_pages_need_no_key_and_are_cached(keyed_server):
    assert status_of(keyed_server + "/v1/models") == 401
    for path in ("/", "/redoc", "/ui", "/pages/chat.js"):
        request = urllib.request.Request(keyed_server + path, headers={"Accept-Encoding": "identity"})
        with urllib.request.urlopen(request) as answer:
            assert "Content-Encoding" not in answer.headers and len(answer.read()) > 300
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            etag = answer.headers["ETag"]
        assert status_of(keyed_server + path, **{"If-None-Match": etag}) == 304


# --- the chat page

def test_an_answer_streams_and_stays_after_a_reload(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    opened.shot("empty-light")
    say(page, "hello")
    answer = wait_for_answer(page)
    expect(answer.locator(".text")).to_have_text(ALPHABET)
    expect(answer).to_contain_text("26 tokens")
    expect(page.locator("#status")).to_have_text("Answer complete")
    opened.shot("answer-light")
    page.reload()
    expect(page.locator(".message.user .text")).to_have_text("hello")
    expect(page.locator(".message.assistant .text")).to_have_text(ALPHABET)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".message")).to_have_count(2)
    page.get_by_role("button", name="New chat").click()
    page.reload()
    expect(page.locator("#welcome")).to_be_visible()


@pytest.mark.parametrize("how", ["Escape", "button"])
def test_an_answer_can_be_stopped(open_tab, endless_path, how):
    with api_server(endless_path, "--session-len", "60000") as url:
        opened = open_tab(url)
        page = opened.open("/ui")
        say(page, "go on")
        expect(page.locator(".message.assistant .text")).to_contain_text(ALPHABET)
        opened.shot("streaming")
        if how == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="Stop").click()
        answer = wait_for_answer(page)
        expect(answer).to_contain_text("stopped")
        assert answer.locator(".text").inner_text().startswith(ALPHABET)
        opened.shot("stopped")
        expect(page.get_by_label("Message", exact=True)).to_be_focused()


def test_regenerate_and_edit_replace_the_last_turn(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    say(page, "one")
    wait_for_answer(page)
    page.get_by_role("button", name="Regenerate answer").click()
    wait_for_answer(page)
    expect(page.locator(".message")).to_have_count(2)
    page.get_by_role("button", name="Edit message").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("one")
    page.keyboard.press("Escape")
    expect(page.locator("#editing")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#editing")).to_be_visible()
    page.keyboard.type(" and two")
    opened.shot("editing")
    page.keyboard.press("Enter")
    wait_for_answer(page)
    expect(page.locator(".message.user .text")).to_have_text(["one and two"])
    assert [body["messages"] for body in sent_bodies(opened)] == [
        [{"role": "user", "content": "one"}], [{"role": "user", "content": "one"}],
        [{"role": "user", "content": "one and two"}]]


def test_settings_are_sent_and_remembered(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_role("slider", name="Temperature").fill("0.25")
    page.get_by_role("slider", name="Top p").fill("0.5")
    page.get_by_label("Most tokens").fill("5")
    page.get_by_label("API key").fill("my key")
    opened.shot("settings")
    page.keyboard.press("Escape")
    say(page, "hello")
    answer = wait_for_answer(page)
    expect(answer).to_contain_text("cut off at the token limit")
    body = sent_bodies(opened)[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.25, 0.5, 5)
    assert body["model"] == "alphabet"
    assert "my key" not in page.evaluate("JSON.stringify(localStorage)")
    assert page.evaluate("JSON.stringify(sessionStorage)").count("my key") == 1
    page.reload()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")
    page.get_by_role("button", name="Back to the defaults").click()
    expect(page.get_by_role("slider", name="Temperature")).to_have_value("0.7")


def test_text_never_becomes_markup(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    script(page, f"{XSS}\n\n# {XSS}\n- {XSS}\n\n> {XSS}\n\n|{XSS}|b|\n|-|-|\n|c|{XSS}|\n\n```{XSS}\n{XSS}\n```\n"
           f"`{XSS}` **{XSS}** [a](javascript:window.hacked=1) [b](data:text/html,x) <b>bold</b> &lt;", reasoning=XSS)
    say(page, XSS)
    answer = wait_for_answer(page)
    answer.locator("summary").click()
    expect(page.locator(".message.user .text")).to_have_text(XSS)
    assert answer.inner_text().count("<img src=x") >= 8
    expect(page.locator("#log :is(img, script, iframe, b, a, [onerror], [src])")).to_have_count(0)
    expect(answer).to_contain_text("<b>bold</b> &lt;")
    page.route("**/v1/chat/completions",
               lambda route: route.fulfill(status=400, json={"error": {"message": XSS}, "message": XSS}))
    opened.allowed.append("400")
    say(page, "again")
    expect(wait_for_answer(page).locator(".error")).to_have_text(XSS)
    page.reload()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    opened.shot("markup-stays-text")


MARKDOWN = """## Sorting

A **bold** and *slanted* word, `code`, ~~gone~~, [a link](https://example.org/x), snake_case_name, 2 * 3 * 4.

1. First
   - inner *one*
   - inner two
2. Second

```python
def sort(items):
    # <not a tag>
    return sorted(items, key=lambda item: item.very_long_name_of_an_attribute + item.another_long_name, reverse=True)
```

| name | size |
|---|---:|
| a | 1 |

> quoted
> text

---
Last line"""


@pytest.mark.parametrize(("look", "viewport"), [("light", None), ("dark", None), ("light", PHONE), ("dark", PHONE)])
def test_markdown_in_each_look(open_tab, look, viewport):
    opened = open_tab(viewport=viewport, color_scheme=look)
    page = opened.open("/ui")
    script(page, MARKDOWN, reasoning="The user wants **sorting**.")
    say(page, "How do I sort in Python?\nShow me.")
    answer = wait_for_answer(page)
    text = answer.locator(":scope > .text")
    expect(text.locator("h2")).to_have_text("Sorting")
    expect(text.locator("strong")).to_have_text(["bold"])
    expect(text.locator("em")).to_have_text(["slanted", "one"])
    expect(text.locator("ol > li")).to_have_count(2)
    expect(text.locator("ol > li ul > li")).to_have_text(["inner one", "inner two"])
    expect(text.locator("td")).to_have_text(["a", "1"])
    expect(text.locator("blockquote")).to_have_text("quoted text")
    expect(text.locator("a")).to_have_attribute("rel", "noopener noreferrer")
    expect(text).to_contain_text("snake_case_name, 2 * 3 * 4.")
    expect(answer.locator("details")).not_to_have_attribute("open", "")
    expect(answer.get_by_text("The user wants")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen"
    assert page.evaluate("(node => node.scrollWidth <= node.clientWidth)(document.getElementById('scroll'))")
    page.locator("#scroll").evaluate("node => node.scrollTop = 0")
    opened.shot(f"markdown-{look}-{'phone' if viewport else 'desktop'}")
    answer.locator("summary").click()
    expect(answer.get_by_text("The user wants")).to_be_visible()
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 380) == (look == "light")


def test_text_and_code_can_be_copied(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    script(page, MARKDOWN)
    say(page, "code")
    answer = wait_for_answer(page)
    answer.get_by_role("button", name="Copy code").click()
    expect(answer.get_by_role("button", name="Copy code")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("def sort(items):\n    # <not a tag>\n")
    answer.get_by_role("button", name="Copy message").click()
    expect(answer.get_by_role("button", name="Copy message")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    page.get_by_role("button", name="Copy message").first.click()  # as on a page without TLS
    expect(page.get_by_role("button", name="Copy message").first).to_have_text("Copied")


def test_markdown_takes_any_text_in_time(open_tab):
    page = open_tab().open("/ui")
    took = page.evaluate("""async () => {
      const {show} = await import("./pages/markdown.js");
      const texts = ["*", "**a ", "`", "[", "> ", ">", "- ", "  - ", "#", "|", "|-", "_a", "~~", "1. ", "```\\n", "-",
        "* ", "\\\\", "<", "\\n", "\\r", "\\t", "[a](", "`` ` ", "- - ", ": -|"].map((text) => text.repeat(20000));
      const target = document.createElement("div");
      let slowest = ["", 0];
      for (const text of texts) {
        const begin = performance.now();
        show(target, text);
        const ms = performance.now() - begin;
        if (ms > slowest[1]) slowest = [text.slice(0, 8), ms];
      }
      return {slowest};
    }""")
    assert took["slowest"][1] < 30000, took  # ms; a guard against hanging, so far above the seconds that it takes


def test_a_growing_answer_keeps_its_finished_blocks(open_tab):
    page = open_tab().open("/ui")
    assert page.evaluate("""async () => {
      const {show} = await import("./pages/markdown.js");
      const target = document.createElement("div");
      show(target, "one\\n\\n```\\ntwo\\n```\\n\\nthr");
      const [first, second, third] = target.children;
      show(target, "one\\n\\n```\\ntwo\\n```\\n\\nthree");
      return target.children[0] === first && target.children[1] === second && target.children[2] !== third
        && target.children[2].textContent === "three";
    }""")


# --- what goes wrong

def test_a_loading_server_is_asked_again(open_tab):
    opened = open_tab()
    opened.allowed.append("503")
    refusals = {"**/v1/models": 1, "**/v1/chat/completions": 2}

    def refuse(pattern):
        def answer(route):
            refusals[pattern] -= 1
            if refusals[pattern] < 0:
                return route.fallback()
            route.fulfill(status=503, headers={"Retry-After": "1"},
                          json={"error": {"message": "loading: the model is not ready yet"}})
        return answer

    for pattern in refusals:
        opened.page.route(pattern, refuse(pattern))
    page = opened.open("/ui")
    expect(page.locator("#banner")).to_contain_text("The model is loading")
    opened.shot("loading")
    expect(page.locator("#model option")).to_have_text(["alphabet"])
    expect(page.locator("#banner")).to_be_hidden()
    say(page, "hello")
    expect(page.locator("#banner")).to_contain_text("Trying again in 1 s")
    expect(page.locator(".message.assistant .text")).to_have_text(ALPHABET)
    expect(page.locator("#banner")).to_be_hidden()


def test_waiting_for_a_loading_server_can_be_stopped(open_tab):
    opened = open_tab()
    opened.allowed.append("503")
    page = opened.open("/ui")
    page.route("**/v1/chat/completions", lambda route: route.fulfill(
        status=503, headers={"Retry-After": "30"}, json={"error": {"message": "busy"}}))
    say(page, "hello")
    expect(page.locator("#banner")).to_contain_text("busy Trying again in 30 s")
    page.keyboard.press("Escape")
    expect(wait_for_answer(page)).to_contain_text("stopped")
    expect(page.locator("#banner")).to_be_hidden()


def test_a_server_that_is_down_is_said_and_found_again(open_tab):
    opened = open_tab()
    opened.allowed.append("ERR_CONNECTION_REFUSED")
    page = opened.open("/ui")
    expect(page.locator("#model option")).to_have_text(["alphabet"])
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    say(page, "hello")
    expect(wait_for_answer(page).locator(".error")).to_have_text("The server cannot be reached.")
    expect(page.locator("#banner")).to_contain_text("cannot be reached")
    opened.shot("error-down")
    page.unroute("**/v1/**")
    expect(page.locator("#banner")).to_be_hidden()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".message.assistant .text")).to_have_text(ALPHABET)
    expect(page.locator(".message")).to_have_count(2)


@pytest.mark.parametrize(("body", "shown"), [
    (sse(delta(content="half")), "The connection ended before the answer was complete."),
    (sse(delta(content="half"), {"error": {"message": "the engine has failed"}}), "the engine has failed"),
    (sse(delta(content="half"), "{broken"), "The connection broke before the answer was complete."),
])
def test_half_an_answer_is_kept_with_its_error(open_tab, body, shown):
    opened = open_tab()
    page = opened.open("/ui")
    page.route("**/v1/chat/completions",
               lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))
    say(page, "hello")
    answer = wait_for_answer(page)
    expect(answer.locator(".text")).to_have_text("half")
    expect(answer.locator(".error")).to_have_text(shown)


def test_the_key_is_asked_for(open_tab, keyed_server):
    opened = open_tab(keyed_server)
    opened.allowed.append("401")
    page = opened.open("/ui")
    expect(page.locator("#banner")).to_contain_text("wants an API key")
    opened.shot("key-wanted")
    page.get_by_role("button", name="Enter key").click()
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Escape")
    say(page, "hello")
    expect(wait_for_answer(page).locator(".error")).to_contain_text("did not accept the API key")
    page.get_by_role("button", name="Enter key").click()
    page.get_by_label("API key").fill("secret")
    page.keyboard.press("Escape")
    expect(page.locator("#banner")).to_be_hidden()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".message.assistant .text")).to_have_text(ALPHABET)


# --- how it is used

def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.id"
                         " || document.activeElement.textContent")


def test_the_keyboard_is_enough(open_tab):
    page = open_tab().open("/ui")
    expect(page.locator("#model option")).to_have_count(1)
    assert focused(page) == "Message"
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    wait_for_answer(page)
    expect(page.locator(".message.user .text")).to_have_text("one\ntwo", use_inner_text=True)
    order = []
    for _ in range(4):
        page.keyboard.press("Shift+Tab")
        order.append(focused(page))
    assert order == ["Regenerate answer", "Copy message", "Edit message", "Copy message"]
    page.locator("#open-settings").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()


def test_colours_can_be_chosen(open_tab):
    opened = open_tab(color_scheme="light")
    page = opened.open("/ui")
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    toggle = page.get_by_role("button", name="Colours")
    expect(toggle).to_have_text("\u25d0 Auto")
    toggle.click()
    assert page.evaluate(back) == light
    toggle.click()
    expect(toggle).to_have_text("\u263e Dark")
    assert page.evaluate(back) != light
    page.reload()
    assert page.evaluate(back) != light
    opened.shot("empty-dark")


def test_everything_has_a_name_and_fits_a_phone(open_tab):
    opened = open_tab(viewport=PHONE)
    page = opened.open("/ui")
    say(page, "a" * 300)
    wait_for_answer(page)
    opened.shot("phone")
    for state in ("chat", "settings"):
        if state == "settings":
            page.get_by_role("button", name="Settings").click()
            opened.shot("phone-settings")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        outside = page.evaluate("""() => [...document.querySelectorAll("button, input, textarea, select")]
          .filter((node) => node.checkVisibility()).map((node) => [node.id, node.getBoundingClientRect()])
          .filter(([, box]) => box.left < 0 || box.right > innerWidth + 0.5).map(([id]) => id)""")
        assert outside == []
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, input, textarea, select")]
      .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
      .map((node) => node.outerHTML)""")
    assert [html for html in nameless if 'type="button"></button>' not in html] == []


def test_long_conversations_follow_the_answer_unless_the_reader_scrolls(open_tab):
    opened = open_tab()
    page = opened.open("/ui")
    script(page, "\n\n".join(f"Paragraph {i}" for i in range(60)))
    say(page, "much")
    wait_for_answer(page)
    at_end = "(m => m.scrollHeight - m.scrollTop - m.clientHeight < 60)(document.querySelector('main'))"
    page.wait_for_function(at_end)
    page.locator("#scroll").evaluate("node => node.scrollTop = 0")
    expect(page.locator("#to-end")).to_be_visible()
    opened.shot("scrolled-up")
    page.locator("#to-end").click()
    page.wait_for_function(at_end)
