"""Tokenizer and chat templates."""
import json

import numpy as np
import pytest

import lmdeploy
import tiny
from lmdeploy import ChatTemplateConfig, Tokenizer
from lmdeploy.chat_template import render
from lmdeploy.model import MODELS, BaseChatTemplate
from lmdeploy.tokenizer import DetokenizeState

MESSAGES = [{"role": "user", "content": "U1"}, {"role": "assistant", "content": "A1"},
            {"role": "user", "content": "U2"}]


@pytest.fixture(scope="module")
def tokenizer(alphabet_path):
    return Tokenizer(alphabet_path)


def test_encode_decode(tokenizer):
    text = "Grüße, 世界! \N{GRINNING FACE}"
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer(text).input_ids == ids
    assert tokenizer([text, "b"]).input_ids == [ids, [ord("b")]]
    with pytest.raises(TypeError, match="int"):
        tokenizer.encode(5)


def test_special_tokens(tokenizer):
    ids = tokenizer.encode("<|im_start|>a<|im_end|>")
    assert ids == [tiny.IM_START, ord("a"), tiny.IM_END]
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>a<|im_end|>"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (tiny.BOS, tiny.IM_END)
    assert tokenizer.encode("<s>a", add_bos=False) == [ord("a")]


def test_decode_takes_an_id_an_array_and_a_tensor(tokenizer):
    class Tensor:
        def __init__(self, values):
            self.tolist = lambda: values

    for ids in (97, np.int64(97), np.array(97), np.array([97]), [np.int32(97)], (97,), Tensor(97), Tensor([97]),
                [Tensor(97)]):
        assert tokenizer.decode(ids) == "a"


@pytest.mark.parametrize("ids, error, words", [
    ([2**70], ValueError, r"ids\[0\] is 1180591620717411303424; expected a token id"), ([97, -1], ValueError, "is -1"),
    (2**70, ValueError, "expected a token id"), ([1.5], TypeError, r"ids\[0\] is 1.5 \(float\)"),
    (None, TypeError, "ids is None"), ("ab", TypeError, "ids is 'ab'"), (1.5, TypeError, "ids is 1.5"),
    ([[1]], TypeError, r"ids\[0\] is \[1\]"), (True, TypeError, "True"), ([10**5000], ValueError, "bits"),
], ids=range(10))
def test_decode_of_what_is_no_ids(tokenizer, ids, error, words):
    with pytest.raises(error, match=words):
        tokenizer.decode(ids)
    with pytest.raises((error, TypeError)):
        tokenizer.detokenize_incrementally(ids, DetokenizeState())


def test_lone_surrogates_are_named(tokenizer):
    for call in (tokenizer.encode, tokenizer, tokenizer.indexes_containing_token):
        with pytest.raises(lmdeploy.LmdeployError, match=r"lone surrogate U\+D800 at index 1"):
            call("a\ud800")
    with pytest.raises(lmdeploy.LmdeployError, match="the template holds the lone surrogate"):
        render("\ud800", {})
    for variables in ({"a": ["\ud800"]}, {"\ud800": 1}):
        with pytest.raises(lmdeploy.LmdeployError, match="variables.*lone surrogate"):
            render("x", variables)
    with pytest.raises(lmdeploy.LmdeployError, match="lone surrogate"):
        MODELS.get("qwen")().get_prompt("\ud800")


def test_templates_refuse_what_is_no_prompt():
    template = MODELS.get("qwen")()
    for call in (template.get_prompt, template.messages2prompt, ChatTemplateConfig.from_json):
        for value in (None, 1, True):
            with pytest.raises(TypeError, match=f"(is|found) {type(value).__name__}"):
                call(value)


def test_flags_are_true_or_false(tokenizer):
    template = MODELS.get("qwen")()
    for call in (lambda: tokenizer.encode("a", add_special_tokens=1), lambda: tokenizer.encode("a", add_bos=None),
                 lambda: template.get_prompt("a", 1),
                 lambda: tokenizer.decode([97], skip_special_tokens="no"),
                 lambda: template.messages2prompt("a", add_generation_prompt=0)):
        with pytest.raises(lmdeploy.LmdeployError, match="expected True or False"):
            call()


def test_decode_from_an_offset(tokenizer):
    ids = list("aé\N{GRINNING FACE}z".encode())
    assert tokenizer.decode(ids, offset=1) == "é\N{GRINNING FACE}z"
    assert tokenizer.decode(ids, offset=2) == "é\N{GRINNING FACE}z"  # the é that began before comes with its end
    assert tokenizer.decode(ids, offset=0) == tokenizer.decode(ids)


def test_incremental_text_never_splits_a_character(tokenizer):
    ids = list("鲸 ok\N{GRINNING FACE}".encode())
    state, pieces = DetokenizeState(), []
    for end in range(1, len(ids) + 1):
        piece, state = tokenizer.detokenize_incrementally(ids[:end], state)
        pieces.append(piece)
    assert "".join(pieces) == "鲸 ok\N{GRINNING FACE}"
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces[:3] == ["", "", "鲸"]


def test_vocabulary_questions(tokenizer):
    assert tokenizer.vocab_size >= 259
    assert tokenizer.indexes_containing_token("q") == [ord("q")]
    assert tokenizer.prefix_space_tokens == {ord(" ")}


def test_missing_tokenizer_names_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        Tokenizer(tmp_path)


def test_catalogue_template():
    template = ChatTemplateConfig("vicuna").chat_template
    assert template.get_prompt("P").endswith(" USER: P ASSISTANT:")
    assert template.messages2prompt(MESSAGES).endswith(" USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:")
    assert "</s>" in template.stop_words
    assert template() is template  # a property in old versions, a method in new ones
    assert MODELS.get("vicuna")().get_prompt("P") == template.get_prompt("P")
    assert MODELS.get("no-such-template") is None


def test_fields_replace_those_of_the_template():
    template = ChatTemplateConfig("internlm2", meta_instruction="be brief").chat_template
    assert template.get_prompt("P").startswith("<|im_start|>system\nbe brief<|im_end|>\n")


@pytest.mark.parametrize("name", ["internlm2", "qwen", "gemma"])
def test_python_template_equals_the_native_one(name):
    fields = {
        "internlm2": dict(system="<|im_start|>system\n", meta_instruction="m", eosys="<|im_end|>\n",
                          user="<|im_start|>user\n", eoh="<|im_end|>\n", assistant="<|im_start|>assistant\n",
                          eoa="<|im_end|>", separator="\n"),
        "qwen": dict(system="<|im_start|>system\n", meta_instruction="m", eosys="<|im_end|>\n",
                     user="<|im_start|>user\n", eoh="<|im_end|>\n", assistant="<|im_start|>assistant\n",
                     eoa="<|im_end|>", separator="\n"),
        "gemma": dict(meta_instruction="m", user="<start_of_turn>user\n", eoh="<end_of_turn>\n",
                      assistant="<start_of_turn>model\n", eoa="<end_of_turn>\n"),
    }[name]
    python, native = BaseChatTemplate(**fields), ChatTemplateConfig(name, meta_instruction="m").chat_template
    system = [{"role": "system", "content": "S"}, *MESSAGES]
    assert python.get_prompt("P") == native.get_prompt("P")
    assert python.get_prompt("P", sequence_start=False) == native.get_prompt("P", sequence_start=False)
    for messages in (MESSAGES, system, MESSAGES[:2]):
        assert python.messages2prompt(messages) == native.messages2prompt(messages)


def test_base_template_rules():
    template = BaseChatTemplate(system="<S>", meta_instruction=None, user="<U>", assistant="<A>", tool="<T>",
                                eotool="</T>")
    assert template.get_prompt("P") == "<U>P<A>"
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert template.messages2prompt([{"role": "user", "content": parts}]) == "<U>one\ntwo<A>"
    assert template.messages2prompt([{"role": "tool", "content": "t"}]) == "<T>t</T><A>"
    assert BaseChatTemplate(user="<U>", capability="completion").get_prompt("P") == "P"
    with pytest.raises(ValueError, match="robot"):
        template.messages2prompt([{"role": "robot", "content": ""}])
    with pytest.raises(NotImplementedError, match="image_url"):
        template.messages2prompt([{"role": "user", "content": [{"type": "image_url"}]}])


def test_registering_templates():
    @MODELS.register_module(name=["test-one", "test-two"])
    class Mine(BaseChatTemplate):
        def __init__(self, user="<mine>", assistant="<bot>"):
            super().__init__(user=user, assistant=assistant)

    try:
        assert MODELS.get("test-one") is Mine
        assert ChatTemplateConfig("test-two").chat_template.get_prompt("P") == "<mine>P<bot>"
        assert ChatTemplateConfig("test-two", user="<u>").chat_template.get_prompt("P") == "<u>P<bot>"
        for name in ("test-one", "internlm2"):
            with pytest.raises(KeyError, match=name):
                MODELS.register_module(name=name)(Mine)
    finally:
        del MODELS.module_dict["test-one"], MODELS.module_dict["test-two"]


def test_json_round_trip(tmp_path):
    config = ChatTemplateConfig("internlm2", meta_instruction="书生", stop_words=["x"])
    text = config.to_json(tmp_path / "template.json")
    assert "书生" in text and '    "eoh": null' in text
    assert ChatTemplateConfig.from_json(text) == config
    assert ChatTemplateConfig.from_json(str(tmp_path / "template.json")) == config
    assert ChatTemplateConfig.from_json("{}").model_name


def test_bad_json():
    with pytest.raises(json.JSONDecodeError):
        ChatTemplateConfig.from_json("{")
    with pytest.raises(ValueError, match="no-such-file"):
        ChatTemplateConfig.from_json("no-such-file.json")
    with pytest.raises(TypeError, match="user_start"):
        ChatTemplateConfig.from_json('{"user_start": "x"}')
    with pytest.raises(ValueError, match="object"):
        ChatTemplateConfig.from_json("[1]")
    with pytest.raises(ValueError, match="capability"):
        ChatTemplateConfig("internlm2", capability="poetry")
