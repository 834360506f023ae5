"""TurboMind instances: ids in, ids and logits out; golden logits and perplexity."""
import asyncio
import pathlib

import numpy as np
import pytest

import lmdeploy
import tiny
from lmdeploy import EngineGenerationConfig, GenerationConfig, TurbomindEngineConfig
from lmdeploy.messages import ResponseType
from lmdeploy.turbomind import TurboMind

GOLDEN = pathlib.Path(__file__).parent.parent / "data" / "models"
FAMILIES = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "expected.safetensors").exists())
F32 = TurbomindEngineConfig(dtype="float32", device_type="cpu", num_threads=1)


@pytest.fixture(scope="module")
def random(random_model):
    path, weights, config = random_model
    with TurboMind.from_pretrained(path, F32, session_len=512) as model:
        yield model, weights, config


@pytest.fixture(scope="module")
def alphabet(alphabet_path):
    with TurboMind.from_pretrained(alphabet_path, session_len=128, num_threads=1) as model:
        yield model


def ids_of(text):
    return list(text.encode())


def test_logits_equal_a_numpy_model(random):
    model, weights, config = random
    ids = list(np.random.default_rng(3).integers(0, tiny.VOCAB_SIZE, 50))
    given = [int(token) for token in ids]
    got = model.create_instance().decode(given)
    assert got.shape == (1, 50, tiny.VOCAB_SIZE) and got.dtype == np.float32
    assert len(given) == 50  # the caller's list is left alone
    want = tiny.reference_logits(ids, weights, config)
    # 2 layers of sums over at most 64 products in f32, values up to about 20: 2^-24 * 64 * 20 is below 1e-4.
    np.testing.assert_allclose(got[0], want, atol=1e-4 * np.abs(want).max())


def test_lists_of_unequal_length(random):
    model, weights, config = random
    lists = [[5, 6, 7], [8], [9, 10]]
    got = model.create_instance().decode(lists)
    assert got.shape == (3, 3, tiny.VOCAB_SIZE)
    for row, ids in zip(got, lists, strict=True):
        np.testing.assert_allclose(row[:len(ids)], tiny.reference_logits(ids, weights, config), atol=2e-3)
        assert not row[len(ids):].any()


def test_perplexity_equals_numpy(random):
    model, weights, config = random
    rng = np.random.default_rng(5)
    lists = [rng.integers(0, tiny.VOCAB_SIZE, n).tolist() for n in (2, 30, 200)]
    want = [tiny.mean_nll(tiny.reference_logits(ids, weights, config), ids) for ids in lists]
    instance = model.create_instance()
    assert instance.get_ppl(lists) == pytest.approx(want, rel=1e-4)
    assert instance.get_ppl(lists[1]) == pytest.approx(want[1:2], rel=1e-4)
    assert instance.get_ppl(np.asarray(lists[1])) == pytest.approx(want[1:2], rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_logits(family):
    expected = tiny.read_safetensors(GOLDEN / family / "expected.safetensors")
    with TurboMind.from_pretrained(str(GOLDEN / family), F32) as model:
        for k in range(3):
            ids, want = expected[f"ids_{k}"].tolist(), expected[f"logits_{k}"]
            if len(ids) >= model.session_len:
                continue
            got = model.create_instance().decode(ids)[0]
            np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max(), err_msg=f"{family} ids_{k}")


def test_there_are_golden_families():
    assert "llama2" in FAMILIES and len(FAMILIES) >= 5


def test_stream_infer_gives_new_tokens(alphabet):
    instance = alphabet.create_instance()
    outputs = list(instance.stream_infer(1, ids_of("w"), sequence_end=True, stream_output=True))
    assert sum((output.token_ids for output in outputs), []) == ids_of("xyz")
    assert {output.status for output in outputs[:-1]} <= {ResponseType.SUCCESS}
    assert outputs[-1].status == ResponseType.FINISH and outputs[-1].num_token == 3
    whole = list(instance.stream_infer(1, ids_of("w"), sequence_end=True))
    assert len(whole) == 1 and whole[0].token_ids == ids_of("xyz")


def test_response_formats_limit_the_ids(alphabet):
    config = GenerationConfig(max_new_tokens=30, response_format={"type": "choice", "choice": ["left", "right"]})
    outputs = list(alphabet.create_instance().stream_infer(1, ids_of("x"), gen_config=config))
    assert bytes(token for output in outputs for token in output.token_ids) in (b"left", b"right")
    assert outputs[-1].status is ResponseType.FINISH


def test_async_stream_infer(alphabet):
    async def main():
        instance = alphabet.create_instance()
        return [output async for output in instance.async_stream_infer(2, ids_of("w"), sequence_end=True)]

    outputs = asyncio.run(main())
    assert [output.token_ids for output in outputs] == [ids_of("xyz")]


def test_configs_of_both_kinds(alphabet):
    instance = alphabet.create_instance()

    def run(**values):
        return next(iter(instance.stream_infer(0, ids_of("a"), sequence_end=True, **values)))

    assert run(gen_config=EngineGenerationConfig(stop_words=[ord("d")])).token_ids == ids_of("bc")
    assert run(gen_config=GenerationConfig(stop_token_ids=[ord("d")])).token_ids == ids_of("bc")
    assert run(gen_config=GenerationConfig(max_new_tokens=2)).token_ids == ids_of("bc")
    output = run(gen_config=GenerationConfig(max_new_tokens=2, logprobs=2, output_logits="generation"))
    assert [max(entry, key=entry.get) for entry in output.logprobs] == ids_of("bc")
    assert output.logits.shape == (2, tiny.VOCAB_SIZE)
    seeded = GenerationConfig(max_new_tokens=20, do_sample=True, temperature=1.0, top_k=0, random_seed=4)
    assert run(gen_config=seeded).token_ids == run(gen_config=seeded).token_ids
    unseeded = GenerationConfig(max_new_tokens=20, do_sample=True, temperature=2.0, top_k=0)
    assert len({tuple(run(gen_config=unseeded).token_ids) for _ in range(5)}) > 1
    with pytest.raises(NotImplementedError, match="stop_token_ids"):
        run(gen_config=GenerationConfig(stop_words=["d"]))


def test_step_rolls_the_session_back(random):
    model, _, _ = random
    instance = model.create_instance()
    config = GenerationConfig(max_new_tokens=6, ignore_eos=True)

    def run(session_id, ids, **values):
        return next(iter(instance.stream_infer(session_id, ids, gen_config=config, **values))).token_ids

    begin, other, end = [3, 1, 4, 1, 5], [90, 91, 92], [2, 6]
    run(1, [*begin, *other])
    rolled = run(1, end, sequence_start=False, step=len(begin))
    continued = run(2, begin) and run(2, end, sequence_start=False)
    assert rolled == run(3, [*begin, *end]) != continued
    for session_id in (1, 2, 3):
        instance.end(session_id)


def test_sessions_and_end(alphabet):
    instance = alphabet.create_instance()
    config = GenerationConfig(max_new_tokens=2)

    def run(ids, **values):
        return next(iter(instance.stream_infer(9, ids, gen_config=config, **values)))

    assert run(ids_of("a")).token_ids == ids_of("bc")
    assert run(ids_of("m"), sequence_start=False).token_ids == ids_of("no")
    instance.end(9)
    assert run(ids_of("m"), sequence_start=False).status == ResponseType.SESSION_NOT_EXIST


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_cancel_and_stop(endless_path, how):
    config = GenerationConfig(max_new_tokens=50000)
    with TurboMind.from_pretrained(endless_path, session_len=60000, num_threads=1) as model:
        instance = model.create_instance()
        outputs = []
        for output in instance.stream_infer(5, ids_of("a"), gen_config=config, stream_output=True):
            outputs.append(output)
            if how == "cancel":
                instance.cancel(5)
            else:
                assert list(instance.stream_infer(5, [], stop=True)) == []
        assert outputs[-1].status == ResponseType.CANCEL and outputs[-1].num_token < 50000


def test_too_long_is_a_status(alphabet):
    output = next(iter(alphabet.create_instance().stream_infer(0, ids_of("a" * 500))))
    assert output.status == ResponseType.INPUT_LENGTH_ERROR and "128" in output.error_message


def test_a_session_runs_one_request_at_a_time(endless_path):
    config = GenerationConfig(max_new_tokens=50000)
    with TurboMind.from_pretrained(endless_path, session_len=60000, num_threads=1) as model:
        running = model.create_instance().stream_infer(6, ids_of("a"), gen_config=config, stream_output=True)
        next(running)
        busy = next(iter(model.create_instance().stream_infer(6, ids_of("a"), sequence_start=False)))
        assert busy.status == ResponseType.SESSION_REPEAT and busy.error_message
        running.close()


def test_session_ids(alphabet):
    instance = alphabet.create_instance()
    assert [next(iter(instance.stream_infer(n, ids_of("x")))).token_ids for n in (0, 2 ** 40)] == [ids_of("yz")] * 2
    for bad in (-1, "a"):
        with pytest.raises(ValueError, match="session_id"):
            instance.stream_infer(bad, ids_of("x"))


@pytest.mark.parametrize("ids", [[], [-1], [10 ** 6], ["a"], [1.5]], ids=repr)
def test_bad_ids_raise(alphabet, ids):
    instance = alphabet.create_instance()
    with pytest.raises((TypeError, ValueError), match="input_ids"):
        instance.stream_infer(0, ids)
    with pytest.raises((TypeError, ValueError), match="input_ids"):
        instance.decode([ids])


def test_from_pretrained_keywords(alphabet_path):
    with TurboMind.from_pretrained(alphabet_path, session_len=77, tp=1, cache_max_entry_count=5) as model:
        assert model.session_len == 77 and model.tokenizer.encode("a") == [97]
        assert model.model_name == alphabet_path
    with pytest.raises(NotImplementedError, match="group_size"):
        TurboMind.from_pretrained(alphabet_path, group_size=128)
    with pytest.raises(TypeError, match="no field 'sesion_len'"):
        TurboMind.from_pretrained(alphabet_path, sesion_len=5)
    config = TurbomindEngineConfig(session_len=66)
    with TurboMind.from_pretrained(alphabet_path, engine_config=config, cache_block_seq_len=32) as model:
        assert model.session_len == 66


def test_seed_pattern_of_the_documentation(alphabet_path):
    with TurboMind.from_pretrained(alphabet_path) as model:
        ids = model.tokenizer.encode("abcdef")
        ppl = model.create_instance().get_ppl(ids)
        assert 0 < np.exp(ppl[0]) < 3


def test_pictures_are_refused(alphabet):
    with pytest.raises(lmdeploy.LmdeployError, match="input_embeddings"):
        alphabet.create_instance().stream_infer(0, [1], input_embeddings=[[0.0]])


@pytest.mark.parametrize("values, words", [
    (dict(session_id=2**70), "session_id is 1180591620717411303424"), (dict(session_id="x"), "session_id is 'x'"),
    (dict(step=2**40, sequence_start=False), "step is 1099511627776"), (dict(sequence_start=1), "sequence_start is 1"),
    (dict(sequence_end="no"), "sequence_end is 'no'"), (dict(input_ids=[[1], [2]]), "holds 2 lists")], ids=str)
def test_bad_arguments_are_named(alphabet, values, words):
    with pytest.raises(lmdeploy.LmdeployError, match=words):
        alphabet.create_instance().stream_infer(**{"session_id": 1, "input_ids": [97], **values})


def test_ids_may_be_arrays(alphabet):
    instance = alphabet.create_instance()
    for ids in (np.array([ord("x")]), np.array([[ord("x")]]), [np.int64(ord("x"))]):
        assert next(iter(instance.stream_infer(5, ids, sequence_end=True))).token_ids == ids_of("yz")
        assert instance.decode(ids).shape[:2] == (1, 1)
