"""pipeline(...) and calling it: prompt shapes, order, configs, and what a Response holds."""
import string
import sys
import warnings

import numpy as np
import pytest

import lmdeploy
import tiny
from lmdeploy import (
    ChatTemplateConfig,
    EngineGenerationConfig,
    GenerationConfig,
    PytorchEngineConfig,
    TurbomindEngineConfig,
)
from lmdeploy.model import MODELS, BaseChatTemplate
from lmdeploy.pytorch import EngineConfig as PytorchOld

ALPHABET = string.ascii_lowercase


def user(text):
    return [{"role": "user", "content": text}]


def test_one_text_gives_one_response(pipe):
    response = pipe("hello")
    assert response.text == ALPHABET
    assert response.finish_reason == "stop"
    assert response.generate_token_len == 26 and response.token_ids == list(ALPHABET.encode())
    assert response.input_token_len == len("<user\nhello>\n<assistant\n")
    assert (response.index, response.session_id, response.error_message) == (0, 0, None)


def test_prompt_shapes(pipe):
    assert isinstance(pipe(user("hello")), lmdeploy.Response)
    assert [r.index for r in pipe([user("hello"), user("again")])] == [0, 1]
    for batch in (["hello"], [user("hello")], ("hello" for _ in range(1))):
        assert [r.text for r in pipe(batch)] == [ALPHABET]
    mixed = pipe(["one", user("two")])
    assert [r.text for r in mixed] == [ALPHABET, ALPHABET]
    parts = pipe([{"role": "user", "content": [{"type": "text", "text": "hello"}]}])
    assert parts.input_token_len == pipe("hello").input_token_len


def test_results_come_in_the_order_of_the_prompts(pipe):
    letters = ALPHABET[:25] * 4
    responses = pipe(list(letters), do_preprocess=False)
    assert [r.text for r in responses] == [ALPHABET[ALPHABET.index(letter) + 1:] for letter in letters]
    assert [r.index for r in responses] == list(range(100))


def test_empty_batch(pipe):
    assert pipe([]) == []
    assert list(pipe.stream_infer([])) == []


def test_do_preprocess_off_takes_the_text_as_it_is(pipe):
    response = pipe("uvw", do_preprocess=False)
    assert (response.text, response.input_token_len) == ("xyz", 3)


def test_one_config_per_prompt(pipe):
    configs = [GenerationConfig(max_new_tokens=n) for n in (1, 2, 3)]
    assert [r.text for r in pipe(["a"] * 3, gen_config=configs, do_preprocess=False)] == ["b", "bc", "bcd"]
    with pytest.raises(ValueError, match="2 entries for 3 prompts"):
        pipe(["a"] * 3, gen_config=configs[:2])


def test_stop_words_lie_across_tokens_and_join_the_templates(pipe):
    response = pipe("a", gen_config=GenerationConfig(stop_words=["efg"]), do_preprocess=False)
    assert (response.text, response.finish_reason) == ("bcd", "stop")
    kept = pipe("a", gen_config=GenerationConfig(stop_words=["efg"], include_stop_str_in_output=True),
                do_preprocess=False)
    assert kept.text == "bcdefg"
    assert pipe("x", gen_config=GenerationConfig(stop_words=["#"]), do_preprocess=False).text == "yz"


def test_limits_and_end_tokens(pipe):
    length = pipe("a", gen_config=GenerationConfig(max_new_tokens=3), do_preprocess=False)
    assert (length.text, length.finish_reason) == ("bcd", "length")
    by_id = pipe("a", gen_config=GenerationConfig(stop_token_ids=[ord("d")]), do_preprocess=False)
    assert (by_id.text, by_id.token_ids) == ("bc", [ord("b"), ord("c")])
    on = pipe("y", gen_config=GenerationConfig(ignore_eos=True, max_new_tokens=4, skip_special_tokens=False),
              do_preprocess=False)
    assert on.text == "z" + 3 * "<|im_end|>"


def test_f25_logit_bias_bans_and_forces(pipe):
    def answer(bias):
        return pipe("a", gen_config=GenerationConfig(logit_bias=bias, max_new_tokens=3), do_preprocess=False)

    assert "b" not in answer({ord("b"): -100.0}).text
    assert answer({ord("q"): 100.0}).text == "qqq"
    with pytest.raises(ValueError, match="logit_bias.*999999999"):
        answer({999999999: 1.0})


def test_bad_words_bias_and_penalties_act_on_greedy_answers(pipe):
    bias = pipe("a", gen_config=GenerationConfig(logit_bias={ord("q"): 100.0}, max_new_tokens=3), do_preprocess=False)
    assert bias.text == "qqq"
    for config in (GenerationConfig(bad_words=["b"], max_new_tokens=1),
                   GenerationConfig(bad_token_ids=[ord("b")], max_new_tokens=1)):
        assert pipe("a", gen_config=config, do_preprocess=False).text != "b"


def test_f20_logprobs_hold_the_chosen_token_of_each_step(pipe):
    response = pipe("w", gen_config=GenerationConfig(logprobs=5), do_preprocess=False)
    assert len(response.logprobs) == response.generate_token_len == 3
    for token, entries in zip(response.token_ids, response.logprobs, strict=True):
        assert len(entries) == 5 and list(entries.values()) == sorted(entries.values(), reverse=True)
        assert next(iter(entries)) == token and entries[token] < 0


@pytest.mark.parametrize("asked", [0, 1, 3])
@pytest.mark.parametrize("stop", [{}, {"stop_words": ["de"]}, {"max_new_tokens": 2}], ids=str)
def test_f21_logprobs_are_never_missing(pipe, asked, stop):
    config = GenerationConfig(logprobs=asked, include_stop_str_in_output=True, **stop)
    response = pipe("a", gen_config=config, do_preprocess=False)
    assert [len(entries) for entries in response.logprobs] == [max(asked, 1)] * response.generate_token_len
    chosen = [max(entries, key=entries.get) for entries in response.logprobs]
    assert pipe.tokenizer.decode(chosen, skip_special_tokens=False) == response.text
    pieces = list(pipe.stream_infer("a", gen_config=config, do_preprocess=False))
    assert [entries for piece in pieces for entries in piece.logprobs or ()] == response.logprobs


def test_logits_are_float32_rows(pipe):
    response = pipe("w", gen_config=GenerationConfig(output_logits="generation"), do_preprocess=False)
    assert response.logits.dtype == np.float32 and response.logits.shape == (3, tiny.VOCAB_SIZE)
    assert list(response.logits.argmax(-1)) == response.token_ids
    whole = pipe("uvw", gen_config=GenerationConfig(output_logits="all"), do_preprocess=False)
    assert whole.logits.shape == (5, tiny.VOCAB_SIZE)
    assert bytes(whole.logits.argmax(-1).astype(np.uint8)) == b"vwxyz"


def test_f19_seeds(endless):
    def sample(**values):
        config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, max_new_tokens=40, **values)
        return endless("a", gen_config=config, do_preprocess=False).text

    assert len({sample() for _ in range(10)}) >= 8
    assert len({sample(random_seed=11) for _ in range(3)}) == 1
    assert sample(random_seed=11) != sample(random_seed=12)


def test_f24_several_choices(endless):
    greedy = endless("a", gen_config=GenerationConfig(n=2, max_new_tokens=3), do_preprocess=False)
    assert [(choice.text, choice.finish_reason) for choice in greedy.choices] == [("bcd", "length")] * 2
    config = GenerationConfig(n=3, do_sample=True, temperature=1.0, max_new_tokens=20, random_seed=5)
    first, second = endless(["a", "b"], gen_config=[config, GenerationConfig(max_new_tokens=2)], do_preprocess=False)
    assert len(first.choices) == 3 and first.choices[0] is first
    assert len({choice.text for choice in first.choices}) == 3
    assert (second.text, second.choices) == ("cd", [])
    answers = endless(["a", "b"], gen_config=config, do_preprocess=False)
    assert [[(c.index, c.session_id) for c in answer.choices] for answer in answers] == [[(0, 0)] * 3, [(1, 1)] * 3]
    with pytest.raises(ValueError, match="n is 3"):
        endless.stream_infer("a", gen_config=config)


def test_sampling_fields_without_do_sample_warn_once_by_name(pipe):
    with pytest.warns(lmdeploy.LmdeployWarning, match="top_p, temperature given without do_sample"):
        assert pipe("x", gen_config=GenerationConfig(top_p=0.9, temperature=0.5), do_preprocess=False).text == "yz"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe("x", gen_config=GenerationConfig(top_p=0.9, temperature=0.5))
        pipe("x", gen_config=GenerationConfig(temperature=0))
        pipe("x", gen_config=GenerationConfig(do_sample=True, top_p=0.9))


def test_loose_arguments(endless):
    assert endless("a", request_output_len=3, do_preprocess=False).text == "bcd"
    assert endless("a", request_output_len=3, top_k=1, do_preprocess=False).text == "bcd"
    texts = {endless("a", request_output_len=40, top_k=40, top_p=1.0, temperature=1.0, do_preprocess=False).text
             for _ in range(5)}
    assert len(texts) > 1
    with pytest.warns(lmdeploy.LmdeployWarning, match="request_output_len"):
        config = GenerationConfig(max_new_tokens=2)
        assert endless("a", gen_config=config, request_output_len=9, do_preprocess=False).text == "bc"
    with pytest.raises(TypeError):
        endless("a", no_such_argument=1)


def test_batch_infer_is_a_deprecated_alias(pipe):
    with pytest.warns(DeprecationWarning, match="infer"):
        assert pipe.batch_infer(["hello"])[0].text == ALPHABET


def test_engine_generation_config_is_taken(pipe):
    response = pipe("a", gen_config=EngineGenerationConfig(stop_words=[ord("d")]), do_preprocess=False)
    assert response.text == "bc"


def test_adapters_are_refused(pipe):
    for call in (pipe, pipe.stream_infer, pipe.chat):
        with pytest.raises(NotImplementedError, match="adapter_name='mine'"):
            call("hello", adapter_name="mine")


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_use_tqdm_shows_a_bar(pipe, capfd, monkeypatch, with_tqdm):
    if not with_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    pipe(["hello"] * 5, use_tqdm=True)
    shown = capfd.readouterr().err
    assert "Answering" in shown and "5/5" in shown and "100%" in shown
    pipe(["hello"])
    assert capfd.readouterr().err == ""


def test_a_bar_never_breaks_over_lines(pipe, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setenv("COLUMNS", "20")
    pipe(["hello"] * 5, use_tqdm=True)
    shown = capfd.readouterr().err
    assert "100% (5/5)" in shown
    assert max(map(len, shown.split("\r"))) < 20


def test_what_a_pipeline_tells_about_itself(pipe, alphabet_path):
    assert pipe.session_len == 256
    assert pipe.model_name == alphabet_path
    assert pipe.instance_num == 16
    assert pipe.tokenizer.encode("ab") == [97, 98]
    assert pipe.chat_template.get_prompt("P") == "<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\n"
    assert isinstance(pipe.backend_config, TurbomindEngineConfig)


def test_response_as_text(pipe):
    response = pipe("x", do_preprocess=False)
    lines = str(response).splitlines()
    assert lines[0] == "text=yz" and repr(response).splitlines()[0] == "text='yz'"
    assert [line.split("=")[0] for line in lines[1:]] == [
        "input_token_len", "generate_token_len", "finish_reason", "token_ids", "logprobs", "logits",
        "last_hidden_state", "routed_experts"]
    assert 'finish_reason="stop"' in lines
    response = pipe("x", gen_config=GenerationConfig(output_logits="generation"), do_preprocess=False)
    assert f"logits.shape=(2, {tiny.VOCAB_SIZE})" in str(response)


def test_extend_appends_the_next_piece():
    first = lmdeploy.Response("a", 1, 5, token_ids=[1], logprobs=[{1: -0.5}], logits=np.zeros((1, 3), np.float32))
    first.extend(lmdeploy.Response("b", 2, 5, "stop", [2], [{2: -0.1}], np.ones((1, 3), np.float32)))
    assert (first.text, first.token_ids, first.generate_token_len, first.finish_reason) == ("ab", [1, 2], 2, "stop")
    assert first.logprobs == [{1: -0.5}, {2: -0.1}] and first.logits.shape == (2, 3)


def test_chat_template_config(alphabet_path):
    with lmdeploy.pipeline(alphabet_path, chat_template_config=ChatTemplateConfig("mine", user="<", eoh=">w")) as pipe:
        assert pipe("hello").text == "xyz"
        assert pipe.chat_template.get_prompt("P") == "<P>w"
    with lmdeploy.pipeline(alphabet_path, chat_template_config=ChatTemplateConfig("hf")) as pipe:
        assert pipe.chat_template.name == "jinja"


def test_template_written_in_python(alphabet_path, pipe):
    @MODELS.register_module(name="test-python")
    class Mine(BaseChatTemplate):
        def __init__(self):
            super().__init__(user="<u>", assistant="\n", eoa=".", stop_words=["f"])

        @classmethod
        def match(cls, model_path):
            return "test-python" if model_path == alphabet_path else None

    try:
        for given in (dict(chat_template_config=ChatTemplateConfig("test-python")), {}):
            with lmdeploy.pipeline(alphabet_path, **given) as other:
                response = other("hello")
                assert (response.text, response.input_token_len) == ("abcde", len("<u>hello\n"))
                assert other(user("hello")).text == "abcde"
                assert "".join(r.text for r in other.stream_infer("hello")) == "abcde"
                session = other.chat("hello")
                session = other.chat("more", session)
                assert session.history == [("hello", "abcde"), ("more", "abcde")]
                assert session.response.input_token_len == len("<u>hello\nabcde.<u>more\n")
        assert pipe("hello", chat_template_config=ChatTemplateConfig("test-python")).text == "abcde"
    finally:
        del MODELS.module_dict["test-python"]


def test_python_template_with_a_tokenizer_that_adds_bos(tmp_path):
    @MODELS.register_module(name="test-bos")
    class Mine(BaseChatTemplate):
        pass

    folder = tiny.write_alphabet_model(tmp_path)
    tiny.add_bos(folder)
    try:
        with lmdeploy.pipeline(str(folder), chat_template_config=ChatTemplateConfig("test-bos")) as pipe:
            lengths = [pipe(text).input_token_len for text in ("ab", "<s>ab")]
            raw = pipe("ab", do_preprocess=False).input_token_len
        assert (lengths, raw) == ([3, 3], 3)
    finally:
        del MODELS.module_dict["test-bos"]


def test_older_calls_of_pipeline(alphabet_path):
    config = TurbomindEngineConfig(session_len=99)
    with pytest.warns(DeprecationWarning, match="model_name"), lmdeploy.pipeline(alphabet_path, "vicuna", config) as p:
        assert p.session_len == 99 and p.chat_template.name == "vicuna"
    with lmdeploy.pipeline(alphabet_path, None, config, ChatTemplateConfig("vicuna"), "ERROR") as p:
        assert p.session_len == 99 and p.chat_template.name == "vicuna"
    with lmdeploy.pipeline(alphabet_path, None, "turbomind", config) as p:
        assert p.session_len == 99
    with pytest.warns(DeprecationWarning, match="tp"), lmdeploy.pipeline(alphabet_path, tp=1, session_len=98) as p:
        assert p.session_len == 98
    with pytest.warns(lmdeploy.LmdeployWarning, match="instance_num"), lmdeploy.pipeline(alphabet_path, instance_num=3):
        pass
    with pytest.warns(lmdeploy.LmdeployWarning, match="model_name='served'"), lmdeploy.pipeline(alphabet_path,
                                                                                                model_name="served"):
        pass
    with lmdeploy.pipeline(alphabet_path, backend_config=PytorchOld(session_len=97)) as p:
        assert p.session_len == 97 and isinstance(p.backend_config, PytorchEngineConfig)


def test_pytorch_config_drives_the_same_engine(alphabet_path):
    config = PytorchEngineConfig(session_len=128, block_size=32, num_gpu_blocks=9, max_batch_size=2, device_type="cpu")
    with lmdeploy.pipeline(alphabet_path, config) as pipe:
        assert pipe(["hello"] * 5)[4].text == ALPHABET
        assert pipe._core.stats().total_blocks == 9


def test_number_of_blocks_and_overrides(alphabet_path):
    config = TurbomindEngineConfig(cache_max_entry_count=7, cache_block_seq_len=32,
                                   hf_overrides={"max_position_embeddings": 96})
    with lmdeploy.pipeline(alphabet_path, config) as pipe:
        assert pipe._core.stats().total_blocks == 7 and pipe.session_len == 96


def test_prompts_are_logged_up_to_max_log_len(alphabet_path, caplog):
    with lmdeploy.pipeline(alphabet_path, log_level="INFO", max_log_len=4) as pipe:
        pipe("hello", do_preprocess=False)
    lmdeploy.pipeline(alphabet_path, log_level="WARNING").close()
    assert "prompt='hel" in caplog.text and "hello" not in caplog.text


def test_schedule_metrics(alphabet_path):
    with lmdeploy.pipeline(alphabet_path, cache_max_entry_count=7, enable_prefix_caching=True) as pipe:
        before = pipe.get_schedule_metrics()
        assert (before.total_seqs, before.scheduler_tick, before.prefix_cache_hit_rate) == (0, 0, 0)
        assert before.free_blocks == before.total_blocks == 7 and before.cache_usage == 0
        pipe(["x" * 200])
        pipe(["x" * 200])
        after = pipe.get_schedule_metrics()
        assert isinstance(after, lmdeploy.messages.ScheduleMetrics)
        assert after.scheduler_tick > 2 and 0 < after.prefix_cache_hit_rate < 1 and after.cached_blocks > 0
        assert after.active_blocks + after.cached_blocks + after.free_blocks == after.total_blocks
