"""Bad input gives one clear exception or Response, and the pipeline keeps working."""
import array
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import lmdeploy
import tiny
from lmdeploy import GenerationConfig, TurbomindEngineConfig, pipeline


@pytest.fixture(autouse=True)
def still_works(pipe):
    yield
    assert pipe("x", do_preprocess=False).text == "yz"


def test_missing_path(tmp_path):
    missing = tmp_path / "nothing-here"
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        pipeline(str(missing))
    with pytest.raises(lmdeploy.LmdeployError):
        pipeline(missing)  # a Path is fine, this one is not there


def test_path_of_the_wrong_type():
    with pytest.raises(TypeError, match="model_path is int"):
        pipeline(5)


def test_folder_without_weights(tmp_path):
    tiny.write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny.llama_config()))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        pipeline(str(tmp_path))


def test_unknown_architecture_lists_the_supported_ones(tmp_path):
    tiny.write_alphabet_model(tmp_path, architectures=["SquirrelForCausalLM"])
    with pytest.raises(NotImplementedError, match="SquirrelForCausalLM.*LlamaForCausalLM"):
        pipeline(str(tmp_path))


def test_damaged_weights_name_the_file(tmp_path):
    folder = tiny.write_alphabet_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="model.safetensors"):
        pipeline(str(folder))


def test_missing_tensor_is_named(tmp_path):
    folder = tiny.write_alphabet_model(tmp_path)
    tensors = tiny.read_safetensors(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    tiny.write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ValueError, match="model.norm.weight"):
        pipeline(str(folder))


@pytest.mark.parametrize("prompt", [5, None, 1.5, b"bytes", {"role": "user", "content": "x"}, [5], ["x", 5], [None],
                                    [["x"]], [[1, 2]], {"x"}, frozenset(), {}.keys(), array.array("i", [1]),
                                    np.array(["x"])], ids=repr)
def test_prompt_that_is_not_text(pipe, prompt):
    for call in (pipe, pipe.stream_infer):
        with pytest.raises((TypeError, ValueError), match="prompt"):
            call(prompt)


def test_prompt_with_pictures(pipe):
    for prompt in (("what is this?", object()), [("what is this?", [object()])]):
        with pytest.raises(NotImplementedError, match="takes no images"):
            pipe(prompt)
    with pytest.raises(NotImplementedError, match="image_url"):
        pipe([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}])


@pytest.mark.parametrize("messages", [[{"content": "no role"}], [{"role": "user"}], [{"role": 5, "content": "x"}],
                                      [{"role": "user", "content": 5}], [{"role": "user", "content": object()}],
                                      [{"role": "user", "content": "x"}, "text"]], ids=repr)
def test_malformed_messages_name_the_place(pipe, messages):
    with pytest.raises(ValueError, match=r"\[[01]\]"):
        pipe(messages)


def test_lone_surrogate(pipe):
    for call in (pipe, pipe.stream_infer, pipe.chat):
        with pytest.raises(ValueError, match="surrogate"):
            call("\ud800")


def test_lone_surrogate_is_named_with_its_place(pipe):
    with pytest.raises(lmdeploy.LmdeployError, match=r"prompts\[1\] holds the lone surrogate U\+D800 at index 1"):
        pipe(["x", "a\ud800b"])
    message = {"role": "user", "content": "\ud800"}
    with pytest.raises(lmdeploy.LmdeployError, match=r"messages\[0\].content: .*surrogate"):
        pipe([message])
    with pytest.raises(lmdeploy.LmdeployError, match=r"prompts\[1\]\[0\].content: .*surrogate"):
        pipe(["x", [message]])
    with pytest.raises(lmdeploy.LmdeployError, match="chat_template_kwargs|template variables.*surrogate"):
        pipe("x", chat_template_kwargs={"a": "\ud800"})


def test_empty_conversation_says_so(pipe):
    with pytest.raises(ValueError, match=r"prompts\[0\] is an empty list"):
        pipe([[]])


def test_messages_inside_themselves_are_one_short_error(pipe):
    cyclic = []
    cyclic.append(cyclic)
    for prompt in ([{"role": "user", "content": cyclic}], [[{"role": "user", "content": cyclic}]]):
        with pytest.raises(ValueError, match="inside itself") as caught:
            pipe(prompt)
        assert len(str(caught.value)) < 200
    with pytest.raises(ValueError, match="inside itself"):
        pipe("x", tools=cyclic)
    with pytest.raises(TypeError, match="not text"):
        pipe(cyclic)


def test_generation_fields_on_the_call_are_shown_their_place(pipe):
    for call in (pipe, pipe.stream_infer, pipe.chat, pipe.preview):
        with pytest.raises(TypeError, match=r"gen_config=GenerationConfig\(max_new_tokens=\.\.\.\)"):
            call("x", max_new_tokens=3)


def test_session_that_is_none(pipe, endless):
    with pytest.raises(TypeError, match="session is int; expected a Session"):
        pipe.chat("a", session=3)
    with pytest.raises(TypeError, match=r"sessions\[1\] is str; expected a Session"):
        pipe.stream_infer(["a", "b"], sessions=[pipe.session(), "b"])
    with pytest.raises(TypeError, match="sessions is int"):
        pipe.stream_infer(["a"], sessions=3)
    with pytest.raises(ValueError, match="another pipeline"):
        pipe.chat("a", session=endless.session())


def test_model_format_agrees_with_the_model(alphabet_path, tmp_path):
    pipeline(alphabet_path, TurbomindEngineConfig(model_format="hf")).close()
    with pytest.raises(ValueError, match="folder says hf, option says gguf"):
        pipeline(alphabet_path, TurbomindEngineConfig(model_format="gguf"))
    for path in (tmp_path, tmp_path / "m.gguf"):
        (tmp_path / "m.gguf").write_bytes(b"no GGUF")
        with pytest.raises(ValueError, match="folder says gguf, option says hf"):
            pipeline(path, TurbomindEngineConfig(model_format="hf"))
        with pytest.raises(ValueError, match="not a GGUF file"):  # gets as far as reading it
            pipeline(path, TurbomindEngineConfig(model_format="gguf"))


def test_path_that_is_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    path = pathlib.Path(os.fsdecode(folder))
    tiny.write_alphabet_model(path)
    for spelling in (path, str(path)):
        with pipeline(spelling) as pipe:
            assert pipe("x", do_preprocess=False).text == "yz"
        assert lmdeploy.Tokenizer(spelling).encode("x") == [ord("x")]


@pytest.mark.parametrize("path", ["a\0b", "a\U0010ffff\ud800b"], ids=ascii)
def test_path_that_cannot_be(path):
    for load in (pipeline, lmdeploy.Tokenizer):
        with pytest.raises(lmdeploy.LmdeployError, match="model_path is .*no path can hold"):
            load(path)


def test_out_of_memory_is_said_in_words(alphabet_path):
    code = """
import resource, sys, lmdeploy
tokenizer = lmdeploy.Tokenizer(sys.argv[1])
text = "x" * 50_000_000
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 20_000_000, -1))
try:
    tokenizer.encode(text)
except MemoryError as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", code, alphabet_path], capture_output=True, text=True, timeout=120)
    assert run.stdout.startswith("ResourceExhaustedError out of memory"), run.stderr


def test_empty_text_without_template(pipe):
    with pytest.raises(ValueError, match="no token ids"):
        pipe("", do_preprocess=False)


def test_nothing_runs_when_one_prompt_of_a_batch_is_bad(pipe):
    before = pipe._core.stats().finished
    with pytest.raises(ValueError, match=r"prompts\[1\]"):
        pipe(["x", [{"role": "user"}]])
    assert pipe._core.stats().finished == before


def test_gen_config_of_the_wrong_type_or_with_bad_ids(pipe):
    with pytest.raises(TypeError, match="gen_config is dict"):
        pipe("x", gen_config={"top_k": 1})
    with pytest.raises(ValueError, match="vocabulary"):
        pipe("x", gen_config=GenerationConfig(stop_token_ids=[10 ** 6]))
    with pytest.raises(TypeError, match="chat_template_config is dict"):
        pipe("x", chat_template_config={})
    with pytest.raises(TypeError, match="chat_template_kwargs is list"):
        pipe("x", chat_template_kwargs=[])
    with pytest.raises(TypeError, match="do_preprocess"):
        pipe("x", None, 512)


def test_lists_changed_in_place_are_checked_when_used(pipe):
    for name, change, words in (("stop_words", lambda words: words.append(5), r"stop_words"),
                                ("bad_token_ids", lambda ids: ids.append("x"), "bad_token_ids"),
                                ("logits_processors", lambda processors: processors.append(5), "logits_processors"),
                                ("logit_bias", lambda bias: bias.update(x=1), "logit_bias")):
        config = GenerationConfig(stop_words=["x"], bad_token_ids=[1], logits_processors=[lambda ids, scores: scores],
                                  logit_bias={1: 1.0})
        change(getattr(config, name))
        for call in (pipe, pipe.stream_infer, pipe.chat):
            with pytest.raises(TypeError, match=f"GenerationConfig.{words}"):
                call("x", gen_config=config)


def test_the_type_of_gen_config_is_named_whatever_the_prompts(pipe):
    for prompts in ("x", ["x", "y"]):
        with pytest.raises(TypeError, match="gen_config is str; expected GenerationConfig"):
            pipe(prompts, gen_config="xy")


def test_more_tokens_than_there_may_be(pipe):
    with pytest.warns(lmdeploy.LmdeployWarning, match="min_new_tokens is 5, but max_new_tokens=2"):
        assert pipe("x", gen_config=GenerationConfig(min_new_tokens=5, max_new_tokens=2)).generate_token_len == 2


def test_gen_config_changed_to_a_bad_value_is_refused_when_used(pipe):
    for name, value in (("temperature", 1e30), ("n", 2**40), ("top_k", -2)):
        config = GenerationConfig(do_sample=True)
        setattr(config, name, value)
        for call in (pipe, pipe.stream_infer, pipe.chat):
            with pytest.raises(ValueError, match=f"{name} is {re.escape(str(value))};"):
                call("x", gen_config=config)


@pytest.mark.parametrize("field, value", [("quant_policy", 16), ("quant_policy", "fp8_e5m2"), ("quant_policy", 42),
                                          ("device_type", "cuda"), ("tp", 2)])
def test_engine_options_that_are_not_there(alphabet_path, field, value):
    with pytest.raises(NotImplementedError, match=field):
        pipeline(alphabet_path, TurbomindEngineConfig(**{field: value}))


def test_other_refused_arguments(alphabet_path):
    with pytest.raises(NotImplementedError, match="eagle3; use prompt_lookup or draft"):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("eagle3"))
    with pytest.raises(ValueError, match='method is "guess"; expected prompt_lookup or draft'):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("guess"))
    with pytest.raises(ValueError, match="model is empty"):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("draft"))
    with pytest.raises(ValueError, match="num_speculative_tokens is 17; expected 1 to 16"):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("prompt_lookup", "", 17))
    with pytest.raises(ValueError, match="model is x; it uses no model: leave it out"):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("prompt_lookup", "x"))
    with pytest.raises(FileNotFoundError, match="/no/such/draft"):
        pipeline(alphabet_path, speculative_config=lmdeploy.SpeculativeConfig("draft", "/no/such/draft"))
    with pytest.raises(TypeError, match="speculative_config is dict"):
        pipeline(alphabet_path, speculative_config={"method": "draft"})
    with pytest.raises(NotImplementedError, match="vision_config"):
        pipeline(alphabet_path, vision_config=lmdeploy.VisionConfig())
    with pytest.raises(NotImplementedError, match="backend 'jax'"):
        pipeline(alphabet_path, backend="jax")
    with pytest.raises(TypeError, match="sesion_len"):
        pipeline(alphabet_path, sesion_len=5)
    with pytest.raises(TypeError, match="backend_config is dict"):
        pipeline(alphabet_path, {"tp": 1})
    with pytest.raises(TypeError, match="chat_template_config is dict"):
        pipeline(alphabet_path, chat_template_config={})
    with pytest.raises(ValueError, match="LOUD"):
        pipeline(alphabet_path, log_level="LOUD")
    with pytest.warns(lmdeploy.LmdeployWarning, match="trust_remote_code"):
        pipeline(alphabet_path, trust_remote_code=True).close()


def test_one_of_two_rope_scalings_wins_aloud(alphabet_path, capfd):
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    pipeline(alphabet_path, rope_scaling_factor=2.0, hf_overrides=linear).close()
    assert "rope_scaling_factor 2 has no effect: hf_overrides has rope_scaling" in capfd.readouterr().err
    pipeline(alphabet_path, hf_overrides=linear).close()
    assert "has no effect" not in capfd.readouterr().err


def test_log_level_of_the_environment_is_named_when_bad(alphabet_path, monkeypatch):
    from lmdeploy import _opening
    monkeypatch.setattr(_opening, "_level_is_ours", False)
    monkeypatch.setenv("TM_LOG_LEVEL", "SHOUT")
    with pytest.raises(ValueError, match="TM_LOG_LEVEL"):
        pipeline(alphabet_path)


def test_f40_a_prompt_that_does_not_fit_is_told_so(alphabet_path, capfd):
    with pipeline(alphabet_path, session_len=64, num_threads=1) as pipe:
        texts = ["x" * 65, "x" * 64, "x" * 63, "x"]
        long, full, fits, short = pipe(texts, do_preprocess=False)
        for response, length in ((long, 65), (full, 64)):
            assert (response.text, response.finish_reason, response.generate_token_len) == ("", "length", 0)
            assert response.error_code == "context_length_exceeded"
            assert str(length) in response.error_message and "64" in response.error_message
            assert response.input_token_len == length
        assert (fits.text, fits.finish_reason, fits.error_message) == ("y", "length", None)
        assert (short.text, short.finish_reason) == ("yz", "stop")
        assert "65 tokens" in capfd.readouterr().err
        pieces = list(pipe.stream_infer(texts[:1], do_preprocess=False))
        assert len(pieces) == 1 and pieces[0].error_code == "context_length_exceeded"
        session = pipe.chat("x" * 65)
        assert session.response.error_code == "context_length_exceeded" and session.history == []
        assert pipe.chat("x", session, GenerationConfig(max_new_tokens=2)).response.text == "ab"


def test_f41_a_too_large_max_new_tokens_is_clamped(alphabet_path, endless_path):
    prompt = "u" * 20
    config = GenerationConfig(max_new_tokens=2048)
    with pipeline(alphabet_path, session_len=64, num_threads=1) as pipe:
        response = pipe(prompt, gen_config=config, do_preprocess=False)
        assert (response.generate_token_len, response.finish_reason) == (5, "stop")
    with pipeline(endless_path, session_len=64, num_threads=1) as pipe:
        for limit in (config, GenerationConfig(max_new_tokens=None)):
            response = pipe(prompt, gen_config=limit, do_preprocess=False)
            assert (response.generate_token_len, response.finish_reason) == (44, "length")


def test_checkpoint_without_tokenizer_says_what_to_use(random_model):
    path, _, _ = random_model
    with pipeline(path) as pipe:
        assert pipe.tokenizer is None
        with pytest.raises(NotImplementedError, match="tokenizer"):
            pipe("hello")
        assert len(pipe.get_ppl([1, 2, 3])) == 1


def test_get_ppl_names_the_bad_list(pipe):
    with pytest.raises(ValueError, match=r"input_ids\[1\] has 1 ids"):
        pipe.get_ppl([[1, 2], [3]])
    with pytest.raises(ValueError, match=r"input_ids\[0\]"):
        pipe.get_ppl([[1, 10 ** 6]])
    with pytest.raises(TypeError, match="input_ids"):
        pipe.get_ppl(["text"])
    with pytest.raises(ValueError, match="reward model"):
        pipe.get_reward_score([1, 2])


class Tensor:
    """What torch's tensors have in common with arrays."""

    def __init__(self, values):
        self._values = values

    def tolist(self):
        return self._values


def test_get_ppl_takes_arrays_and_tensors(pipe):
    want = pipe.get_ppl([1, 2, 3])
    for ids in (np.array([1, 2, 3]), [np.array([1, 2, 3])], np.array([[1, 2, 3]]), [np.int64(1), 2, np.uint8(3)],
                Tensor([1, 2, 3]), [Tensor([1, 2, 3])], Tensor([[1, 2, 3]]), [Tensor(1), Tensor(2), Tensor(3)],
                (1, 2, 3), iter([1, 2, 3])):
        assert pipe.get_ppl(ids) == want


BAD_IDS = [("", TypeError, "input_ids is ''"), (None, TypeError, "input_ids is None"), (5, TypeError, "input_ids is 5"),
           ({1: 2}, TypeError, "input_ids is {1: 2}"),
           ([[1, 2**40]], ValueError, r"input_ids\[0\]\[1\] is 1099511627776"),
           ([[1.5, 2]], TypeError, r"input_ids\[0\]\[0\] is 1.5"), (np.array([1.5, 2]), TypeError, r"\[0\] is 1.5"),
           ([{"role": "user"}], TypeError, r"input_ids\[0\] is {'role': 'user'}"),
           ([1, "2"], TypeError, r"\[1\] is '2'"),
           ([[1, -2]], ValueError, "is -2"), ([1, True], TypeError, r"\[1\] is True")]


@pytest.mark.parametrize("ids, error, words", BAD_IDS, ids=[str(case[0]) for case in BAD_IDS])
def test_get_ppl_of_what_is_no_ids(pipe, ids, error, words):
    with pytest.raises(error, match=words):
        pipe.get_ppl(ids)


def test_relative_and_home_paths(alphabet_path, monkeypatch):
    monkeypatch.setenv("HOME", os.path.dirname(alphabet_path))
    name = pathlib.Path(alphabet_path).name
    with pipeline(f"~/{name}") as pipe:
        assert pipe("x", do_preprocess=False).text == "yz"
