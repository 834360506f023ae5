"""GenerationConfig and the engine configs: types, ranges, what is refused and what warns."""
import copy
import dataclasses
import pickle
import warnings

import numpy as np
import pytest

import lmdeploy
from lmdeploy import EngineGenerationConfig, GenerationConfig, PytorchEngineConfig, TurbomindEngineConfig
from lmdeploy._engine_configs import modern
from lmdeploy._fields import NO_EFFECT, REFUSED, TABLES, USED, check_fields
from lmdeploy.pytorch import EngineConfig as PytorchOld
from lmdeploy.turbomind import EngineConfig as TurbomindOld

BAD_GENERATION = [
    dict(n=0), dict(max_new_tokens=-1), dict(top_p=1.5), dict(top_p=-0.1), dict(top_k=-2),
    dict(min_p=1.1), dict(temperature=-0.1), dict(temperature=2.1), dict(temperature=float("nan")),
    dict(repetition_penalty=0.0), dict(logprobs=-1), dict(min_new_tokens=-1), dict(output_logits="some"),
    dict(presence_penalty=3.0), dict(stop_words=[""]), dict(stop_token_ids=[-5]),
]


@pytest.mark.parametrize("values", BAD_GENERATION, ids=str)
def test_generation_value_out_of_range(values):
    name = next(iter(values))
    for error in (AssertionError, ValueError, lmdeploy.LmdeployError):
        with pytest.raises(error, match=name):
            GenerationConfig(**values)


@pytest.mark.parametrize("values", [dict(temperature="hot"), dict(top_k=1.5), dict(n=True), dict(stop_words=[1]),
                                    dict(do_sample=1), dict(random_seed="7"), dict(logit_bias={"x": 1.0})], ids=str)
def test_generation_value_of_wrong_type(values):
    name = next(iter(values))
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=f"GenerationConfig.{name}"):
            GenerationConfig(**values)


TOO_LARGE = [(GenerationConfig, name, value) for name, value in (
    ("max_new_tokens", 2**63), ("max_new_tokens", -2**70), ("top_k", 2**40), ("logprobs", 2**40), ("n", 2**40),
    ("min_new_tokens", 2**70), ("repetition_ngram_size", 2**31), ("stop_token_ids", [1, 2**40]),
    ("bad_token_ids", [2**40]), ("logit_bias", {2**40: 1}), ("temperature", 10**400), ("logit_bias", {1: 10**400}),
    ("max_new_tokens", 10**5000), ("n", 16385))]
TOO_LARGE += [(TurbomindEngineConfig, "session_len", 2**63), (TurbomindEngineConfig, "num_threads", 2**31),
              (PytorchEngineConfig, "num_gpu_blocks", 2**70), (TurbomindEngineConfig, "devices", [2**70]),
              (EngineGenerationConfig, "stop_words", [2**40])]


@pytest.mark.parametrize("config, name, value", TOO_LARGE, ids=[f"{case[1]}-{i}" for i, case in enumerate(TOO_LARGE)])
def test_integers_that_no_native_field_holds(config, name, value):
    with pytest.raises(lmdeploy.LmdeployError, match=rf"{name}.*; expected .*\d") as caught:
        config(**{name: value})
    assert isinstance(caught.value, AssertionError) and "incompatible" not in str(caught.value)
    changed = config()
    with pytest.raises(lmdeploy.LmdeployError, match=name):
        setattr(changed, name, value)
        changed._validate()


def test_message_of_an_integer_out_of_range_has_all_parts():
    with pytest.raises(ValueError, match=r"max_new_tokens is 9223372036854775808; expected 0 to 2147483647$"):
        GenerationConfig(max_new_tokens=2**63)
    with pytest.raises(ValueError, match=r"stop_token_ids\[1\] is 1099511627776; expected 0 to 2147483647$"):
        GenerationConfig(stop_token_ids=[1, 2**40])
    for n in (16385, 2**40):
        with pytest.raises(ValueError, match=rf"n is {n}; expected 1 to 16384$"):
            GenerationConfig(n=n)


def test_numbers_are_echoed_as_given():
    with pytest.raises(ValueError, match=r"temperature is 1e\+30;"):
        GenerationConfig(temperature=1e30)
    with pytest.raises(ValueError, match=r"top_p is -0\.1;"):
        GenerationConfig(top_p=-0.1)
    with pytest.raises(ValueError, match=r"repetition_penalty is -0\.1;"):
        GenerationConfig(repetition_penalty=-0.1)


@pytest.mark.parametrize("make, words", [
    (lambda: GenerationConfig(stop_words=["x", "\ud800"]), r"stop_words\[1\] holds the lone surrogate U\+D800"),
    (lambda: GenerationConfig(bad_words="a\udfff"), r"bad_words\[0\] holds the lone surrogate U\+DFFF at index 1"),
    (lambda: TurbomindEngineConfig(dtype="\ud800"), "dtype holds"),
    (lambda: TurbomindEngineConfig(hf_overrides={"\ud800": 1}), "hf_overrides: a key holds"),
    (lambda: lmdeploy.ChatTemplateConfig("\ud800"), "model_name holds"),
    (lambda: lmdeploy.ChatTemplateConfig("qwen", user="\ud800"), "user holds"),
], ids=range(6))
def test_lone_surrogates_in_configs(make, words):
    with pytest.raises(lmdeploy.LmdeployError, match=words):
        make()


def test_seeds_may_be_of_any_size():
    GenerationConfig(random_seed=2**70)
    EngineGenerationConfig(random_seed=-2**70)


def test_edges_of_ranges_are_fine():
    GenerationConfig(n=16384, max_new_tokens=2**31 - 1, logit_bias={2**31 - 1: 1})
    GenerationConfig(repetition_ngram_size=-1, repetition_ngram_threshold=-1)  # 0 or less: off
    GenerationConfig(temperature=0, top_p=0, min_p=1)
    GenerationConfig(temperature=2.0, top_p=1, top_k=0)
    GenerationConfig(top_k=-1, max_new_tokens=None, random_seed=-1)


def test_unknown_name_suggests_the_right_one():
    with pytest.raises(TypeError, match="did you mean max_new_tokens"):
        GenerationConfig(max_new_token=5)
    with pytest.raises(ValueError, match="sesion_len"):
        TurbomindEngineConfig(sesion_len=5)
    config = GenerationConfig()
    with pytest.raises(TypeError, match="no field"):
        config.max_tokens = 5


def test_numbers_of_numpy_and_single_words_are_taken():
    config = GenerationConfig(max_new_tokens=np.int64(3), temperature=np.float32(0.5), stop_words="end")
    assert (type(config.max_new_tokens), type(config.temperature)) == (int, float)
    assert config.stop_words == ["end"]


def test_arrays_are_lists_and_no_numbers():
    assert GenerationConfig(stop_token_ids=np.array([1, 2])).stop_token_ids == [1, 2]
    assert GenerationConfig(top_k=np.array(3)).top_k == 3
    for name, value in (("top_k", np.array([3])), ("stop_token_ids", np.array(3)), ("temperature", np.array([1.5]))):
        with pytest.raises(lmdeploy.LmdeployError, match=f"{name} is"):
            GenerationConfig(**{name: value})


def test_assignment_is_checked_too():
    config = GenerationConfig()
    config.top_k = 5
    assert config.given("top_k") and not config.given("top_p")
    with pytest.raises(TypeError, match="top_p"):
        config.top_p = "high"


def test_given_survives_copies():
    config = GenerationConfig(top_p=1.0)
    for other in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config and other.given("top_p") and not other.given("top_k")
    replaced = dataclasses.replace(config, n=2)
    assert replaced.n == 2 and not replaced.given("top_k")


def test_engine_form_of_a_generation_config(pipe):
    config = GenerationConfig(do_sample=True, top_k=7, stop_words=["q", "zz"], stop_token_ids=[3], bad_words=["x"])
    engine = EngineGenerationConfig.From(config, pipe.tokenizer)
    assert (engine.top_k, engine.stop_words, engine.bad_words) == (7, [ord("q"), 3], [ord("x")])
    assert EngineGenerationConfig.From(GenerationConfig(), pipe.tokenizer).top_k == 1
    again = engine.to_generation_config()
    assert again.do_sample and again.stop_token_ids == [ord("q"), 3]
    config.convert_stop_bad_words_to_ids(pipe.tokenizer)
    assert config.stop_token_ids == [3, ord("q")] and config.bad_token_ids == [ord("x")]


@pytest.mark.parametrize("values", [dict(tp=0), dict(session_len=0), dict(max_batch_size=0), dict(dtype="int3"),
                                    dict(cache_max_entry_count=0.0), dict(quant_policy=3), dict(quant_policy="int3"),
                                    dict(rope_scaling_factor=-1.0), dict(async_=2)], ids=str)
def test_turbomind_value_out_of_range(values):
    with pytest.raises(AssertionError, match=f"invalid {next(iter(values))}"):
        TurbomindEngineConfig(**values)


@pytest.mark.parametrize("values", [dict(tp="2"), dict(session_len=1.5), dict(enable_prefix_caching=1),
                                    dict(hf_overrides=[1]), dict(cache_max_entry_count="half"),
                                    dict(rounded_activations="yes")], ids=str)
def test_turbomind_value_of_wrong_type(values):
    with pytest.raises(ValueError, match=f"TurbomindEngineConfig.{next(iter(values))}"):
        TurbomindEngineConfig(**values)


@pytest.mark.parametrize("values", [dict(tp=0), dict(cache_max_entry_count=1.0), dict(cache_max_entry_count=0.0),
                                    dict(block_size=8), dict(block_size=48), dict(quant_policy=5), dict(dtype="f16"),
                                    dict(num_cpu_blocks=-1), dict(num_gpu_blocks=-1), dict(device_type="tpu"),
                                    dict(eviction_type="burn"), dict(max_batch_size=0)], ids=str)
def test_pytorch_value_out_of_range(values):
    with pytest.raises(AssertionError, match=f"invalid {next(iter(values))}"):
        PytorchEngineConfig(**values)


@pytest.mark.parametrize("cls", TABLES, ids=lambda cls: cls.__name__)
def test_every_field_has_one_rule(cls):
    assert set(TABLES[cls]) == {field.name for field in dataclasses.fields(cls)}
    assert {rule for rule, _ in TABLES[cls].values()} <= {USED, REFUSED, NO_EFFECT}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_fields(cls())


@pytest.mark.parametrize("config", [
    TurbomindEngineConfig(dp=2), TurbomindEngineConfig(nnodes=2),
    TurbomindEngineConfig(devices=[0]), TurbomindEngineConfig(empty_init=True),
    PytorchEngineConfig(ep=2), PytorchEngineConfig(adapters={"a": "b"}),
    PytorchEngineConfig(custom_module_map={"x": "y"}), PytorchEngineConfig(role="Prefill"),
    PytorchEngineConfig(logprobs_mode="raw_logits"),
    GenerationConfig(with_cache=True), GenerationConfig(return_routed_experts=True),
], ids=lambda c: f"{type(c).__name__}-{next(iter(c.changed()))}")
def test_what_cannot_be_honoured_is_refused_by_name(config):
    with pytest.raises(NotImplementedError, match=f"{type(config).__name__}.{next(iter(config.changed()))}"):
        check_fields(config)


@pytest.mark.parametrize("config", [
    TurbomindEngineConfig(cache_chunk_size=1),
    TurbomindEngineConfig(async_=0),
    TurbomindEngineConfig(enable_metrics=False),
    PytorchEngineConfig(prefill_interval=1), PytorchEngineConfig(eager_mode=True),
    PytorchEngineConfig(num_cpu_blocks=3),
    GenerationConfig(spaces_between_special_tokens=False),
], ids=lambda c: f"{type(c).__name__}-{next(iter(c.changed()))}")
def test_what_has_no_effect_says_so_once(config):
    with pytest.warns(lmdeploy.LmdeployWarning, match=f"{next(iter(config.changed()))}.* has no effect"):
        check_fields(config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_fields(config)


def test_configs_of_the_time_before_0_2():
    config = modern(TurbomindOld(quant_policy=4, session_len=100, use_dynamic_ntk=True, max_context_token_num=2048))
    assert isinstance(config, TurbomindEngineConfig)
    assert (config.quant_policy, config.session_len, config.cache_block_seq_len) == (8, 100, 128)
    assert (config.rope_scaling_factor, config.max_prefill_token_num) == (1.0, 2048)
    assert modern(PytorchOld(session_len=100)) == PytorchEngineConfig(session_len=100)


def test_documented_long_context_example_constructs():
    config = TurbomindEngineConfig(rope_scaling_factor=2.0, session_len=160000, max_batch_size=1,
                                   cache_max_entry_count=0.7, tp=4)
    assert config.session_len == 160000


def test_optional_configs_construct():
    assert lmdeploy.SpeculativeConfig("draft").num_speculative_tokens == 1
    assert lmdeploy.VisionConfig().max_batch_size == 1


@pytest.mark.parametrize("make", [
    lambda: TurbomindEngineConfig(cache_max_entry_count=1.5),
    lambda: TurbomindEngineConfig(cache_max_entry_count=float("nan")),
    lambda: TurbomindEngineConfig(cache_max_entry_count=float("inf"))])
def test_blocks_are_whole(make):
    with pytest.raises(AssertionError, match="cache_max_entry_count: .*whole number of blocks"):
        make()


def test_what_a_wrong_value_is_told():
    with pytest.raises(ValueError, match="top_k is -3; expected 1 or more, or no limit: 0 or -1"):
        lmdeploy.GenerationConfig(top_k=-3)
    with pytest.raises(NotImplementedError, match="migration_request"):
        check_fields(lmdeploy.GenerationConfig(migration_request=2**31))


@pytest.mark.parametrize("method", ["prompt_lookup", "draft"])
def test_guesses_change_no_answer(alphabet_path, method):
    speculative = lmdeploy.SpeculativeConfig(method, alphabet_path if method == "draft" else "", 4)
    gen_config = lmdeploy.GenerationConfig(max_new_tokens=100, ignore_eos=True)
    with lmdeploy.pipeline(alphabet_path, speculative_config=speculative) as guessed, \
         lmdeploy.pipeline(alphabet_path) as plain:
        assert guessed("abcabc", gen_config).token_ids == plain("abcabc", gen_config).token_ids
        told, native = guessed.get_schedule_metrics().speculative, guessed._core.stats()
        assert (told.num_drafts, told.num_draft_tokens, told.num_accepted_tokens, told.gain) == (
            native.num_drafts, native.num_draft_tokens, native.num_accepted_tokens, native.speculative_gain)
        assert sum(told.num_accepted_tokens_per_pos) == told.num_accepted_tokens <= told.num_draft_tokens
        if told.num_drafts:
            assert told.mean_accept_rate == told.num_accepted_tokens / told.num_draft_tokens
            assert told.mean_accept_length == 1 + told.num_accepted_tokens / told.num_drafts
        assert plain.get_schedule_metrics().speculative == lmdeploy.messages.SpeculativeMetrics(
            num_accepted_tokens_per_pos=[0] * 16)


@pytest.mark.parametrize("config", [TurbomindEngineConfig(quant_policy=8), PytorchEngineConfig(quant_policy="int4")],
                         ids=["int8", "int4"])
def test_a_quantised_cache_answers(alphabet_path, config):
    with lmdeploy.pipeline(alphabet_path, config) as quantised, lmdeploy.pipeline(alphabet_path) as exact:
        assert quantised("x").text == exact("x").text
