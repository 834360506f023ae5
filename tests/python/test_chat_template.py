"""lmdeploy.chat_template: rendering of any template string."""
import datetime
import json
import pathlib

import pytest

from lmdeploy import chat_template
from lmdeploy.errors import InvalidArgumentError, InvalidDataError

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
REAL_TEMPLATES = REPOSITORY.parent / "shared/data/chat_templates"
MESSAGES = [{"role": "user", "content": "Grüße"}]


def test_render():
    template = "{% for m in messages %}\n[{{ m.role }}] {{ m.content }}{{ eos }}\n{% endfor %}\n"
    assert chat_template.render(template, {"messages": MESSAGES, "eos": "</s>"}) == "[user] Grüße</s>\n"


def test_the_templates_own_words():
    with pytest.raises(ValueError, match="line 2: no system role, müde"):
        chat_template.render("\n{{ raise_exception('no system role, müde') }}", {})


def test_syntax_error_names_the_line():
    with pytest.raises(InvalidDataError, match="line 2: .*endfor"):
        chat_template.render("\n{% for x in y %}", {})


def test_now():
    template = "{{ strftime_now('%d %b %Y %H:%M:%S.%f %A %j') }}|{{ strftime_now('%z %Z') }}"
    now = datetime.datetime(2025, 7, 26, 14, 5, 9, 42)
    assert chat_template.render(template, {}, now=now) == now.strftime("%d %b %Y %H:%M:%S.%f %A %j") + "| "
    aware = now.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert chat_template.render(template, {}, now=aware).endswith("|+0200 UTC+02:00")
    stamp = now.timestamp()
    assert chat_template.render("{{ strftime_now('%Y-%m-%d %H:%M') }}", {}, now=stamp) == "2025-07-26 14:05"
    assert chat_template.render("{{ strftime_now('%Y') }}", {}) >= "2025"


@pytest.mark.parametrize("now", ["2025", True, 1e300, float("nan")])
def test_now_that_is_no_time(now):
    with pytest.raises(InvalidArgumentError, match="now"):
        chat_template.render("", {}, now=now)


@pytest.mark.parametrize("arguments", [(5, {}), ("", [1]), (b"", {})])
def test_wrong_types(arguments):
    with pytest.raises(TypeError, match="render"):
        chat_template.render(*arguments)


@pytest.mark.parametrize(("variables", "place"), [({"v": {"w": [object()]}}, r"variables\.v\.w\[0\]"), ({"v": {1: 2}}, "key"),
                                                  ({1: 2}, "key"), ({"v": 2**64}, r"variables\.v")])
def test_a_variable_that_is_no_json_is_named(variables, place):
    with pytest.raises(InvalidArgumentError, match=place):
        chat_template.render("", variables)


def test_hostile_template_ends():
    with pytest.raises(InvalidArgumentError, match="recursion depth"):
        chat_template.render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {})


def golden_variables(file, case):
    variables = {name: case[name] for name in ("messages", "tools", "documents", "add_generation_prompt") if name in case}
    variables |= {name: file[name] for name in ("bos_token", "eos_token") if name in file}
    for name in case.get("unset", ()):
        variables.pop(name, None)
    return variables | case.get("extra", {})


def test_real_templates():
    if not REAL_TEMPLATES.exists():
        pytest.skip(f"{REAL_TEMPLATES} is not there")
    count = 0
    for path in sorted(REAL_TEMPLATES.glob("[!_]*.json")):
        file = json.loads(path.read_text(encoding="utf-8"))
        now = datetime.datetime.fromisoformat(file["now"])
        for case in file["cases"]:
            count += 1
            variables = golden_variables(file, case)
            if case.get("error_type", "ValueError") == "ValueError":
                got = chat_template.render(file["template"], variables, now=now)
                assert got == case.get("expected_before_cut", case.get("expected", got)), (path.name, case["case"])
                continue
            with pytest.raises(InvalidArgumentError) as caught:
                chat_template.render(file["template"], variables, now=now)
            if case["error_type"] == "raise_exception":
                assert str(caught.value).endswith(": " + case["expected_error"]), (path.name, case["case"])
    assert count == 6503


def test_random_templates_as_jinja2_renders_them():
    pytest.importorskip("jinja2")
    import jinja_fuzz

    count, rendered, found = jinja_fuzz.run(seed=1, max_templates=200)
    assert not found, "\n".join(found)
    assert rendered > count // 4
