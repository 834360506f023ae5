"""What the chat template gets to see: tools, variables, half-written answers; previews; templates written in Python."""
import shutil

import pytest

import lmdeploy
from lmdeploy import ChatTemplateConfig
from lmdeploy.model import MODELS, BaseChatTemplate

TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
TEMPLATE = """{%- if tools %}[{{ tools | tojson }}]{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }}
{%- for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}</call>{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{{ mood or '' }}{% endif -%}"""
USER = {"role": "user", "content": "hi"}
HALF = [USER, {"role": "assistant", "content": "1, 2,"}]


@pytest.fixture(scope="module")
def templated(alphabet_path, tmp_path_factory):
    """The alphabet model with a template that shows what it is given."""
    path = shutil.copytree(alphabet_path, tmp_path_factory.mktemp("templated") / "model")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    with lmdeploy.pipeline(str(path), session_len=512, num_threads=1) as opened:
        yield opened


def test_preview_is_what_infer_sends(pipe):
    preview = pipe.preview("hello")
    assert preview.text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert len(preview.token_ids) == pipe("hello").input_token_len
    assert pipe.tokenizer.decode(preview.token_ids, skip_special_tokens=False) == preview.text
    assert pipe.preview("uvw", do_preprocess=False) == lmdeploy.messages.PromptPreview("uvw", [*b"uvw"])
    closed = pipe.preview(["a", [USER]], add_generation_prompt=False)
    assert all(p.text.endswith("<|im_end|>\n") for p in closed)
    assert pipe.preview([]) == []
    assert pipe.preview("P", chat_template_config=ChatTemplateConfig("vicuna")).text.endswith(" USER: P ASSISTANT:")


def test_variables_reach_the_template(templated):
    assert templated.preview([USER]).text.endswith("<|im_start|>assistant\n")
    assert templated.preview([USER], enable_thinking=False).text.endswith("assistant\n<think></think>")
    assert templated.preview("hi", chat_template_kwargs={"enable_thinking": False, "mood": "w"}).text.endswith(
        "assistant\n<think></think>w")
    assert templated("hi", chat_template_kwargs={"mood": "w"}).text == "xyz"
    assert "".join(r.text for r in templated.stream_infer("hi", chat_template_kwargs={"mood": "w"})) == "xyz"
    assert templated.chat("hi", chat_template_kwargs={"mood": "w"}).response.text == "xyz"


def test_tools_and_their_results(templated):
    def prompt(arguments, content):
        calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        talk = [USER, {"role": "assistant", "content": content, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": '{"t": 21}'}]
        return templated.preview(talk, tools=TOOLS).text

    text = prompt('{"x": 6, "y": "é"}', None)
    assert text.startswith('[[{"type": "function", "function": {"name": "f"')
    assert "<|im_start|>assistant\n<call>f x=6 y=é</call><|im_end|>" in text
    assert '<|im_start|>tool\n{"t": 21}<|im_end|>' in text
    assert prompt({"x": 6, "y": "é"}, "") == text
    with pytest.raises(ValueError, match="robot"):
        templated.preview([{"role": "robot", "content": "x"}])


def test_f11_continues_a_half_written_answer(templated):
    continued = templated.preview(HALF, continue_final_message=True)
    assert continued.text.endswith("<|im_start|>assistant\n1, 2,")
    assert bytes(continued.token_ids[-5:]) == b"1, 2,"
    half = [USER, {"role": "assistant", "content": "abc"}]
    assert templated(half, continue_final_message=True).text == "defghijklmnopqrstuvwxyz"
    with pytest.raises(ValueError, match="continue_final_message"):
        templated(HALF, continue_final_message=True, add_generation_prompt=True)


def test_bad_arguments(templated):
    with pytest.raises(TypeError, match="enable_thought"):
        templated("hi", enable_thought=True)
    with pytest.raises(TypeError, match="chat_template_kwargs"):
        templated("hi", chat_template_kwargs=["x"])
    with pytest.raises(TypeError, match="tools"):
        templated("hi", tools="f")
    with pytest.raises(TypeError, match="enable_thinking"):
        templated("hi", enable_thinking="no")
    with pytest.raises(ValueError, match="messages"):
        templated("hi", chat_template_kwargs={"messages": []})


def test_a_registered_class_renders_for_the_pipeline(alphabet_path):
    seen = []

    @MODELS.register_module(name="test-own")
    class Own(BaseChatTemplate):
        def __init__(self):
            super().__init__(user="<", eoh=">", assistant="w")

        def messages2prompt(self, messages, sequence_start=True, **kwargs):
            seen.append(kwargs)
            return super().messages2prompt(messages, sequence_start, **{**kwargs, "tools": None})

    try:
        with lmdeploy.pipeline(alphabet_path, chat_template_config=ChatTemplateConfig("test-own"),
                               num_threads=1) as opened:
            assert opened("a").text == "xyz"
            preview = opened.preview([USER], tools=TOOLS, chat_template_kwargs={"mood": "x"})
            assert (preview.text, preview.token_ids) == ("<hi>w", [*b"<hi>w"])
            assert seen[-1] == {"tools": TOOLS, "mood": "x"}
            assert opened.preview(HALF, continue_final_message=True).text == "<hi>w1, 2,"
            assert opened.preview([USER], add_generation_prompt=False).text == "<hi>"
    finally:
        del MODELS.module_dict["test-own"]


def test_base_template_refuses_tools():
    with pytest.raises(ValueError, match="tools"):
        BaseChatTemplate().messages2prompt([USER], tools=TOOLS)
    with pytest.raises(ValueError, match="tools"):
        BaseChatTemplate().messages2prompt("hi", tools=TOOLS)
