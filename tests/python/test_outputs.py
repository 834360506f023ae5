"""What answers carry besides text: logits, hidden states, scores; and callables that change the logits."""
import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import lmdeploy
import tiny
from api_server import api_server
from lmdeploy import GenerationConfig, TurbomindEngineConfig
from lmdeploy.turbomind import TurboMind

F32 = TurbomindEngineConfig(dtype="float32", session_len=256, max_batch_size=4, num_threads=1)
TEXTS = ["to", "be", "or not to be"]
IDS = [list(text.encode()) for text in TEXTS]  # a token is a byte


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """(path, weights, config) of a random model with a tokenizer."""
    folder = tmp_path_factory.mktemp("random_text")
    tiny.write_tokenizer(folder)
    return tiny.write_random_llama(folder)


@pytest.fixture(scope="module")
def random_pipe(random_model):
    with lmdeploy.pipeline(random_model[0], F32) as opened:
        yield opened


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    return tiny.write_reward_model(tmp_path_factory.mktemp("reward"))


def both_ways(pipe, text, config):
    """The answer read as a stream and as a whole: both must agree."""
    pieces = list(pipe.stream_infer([text], gen_config=config, do_preprocess=False))
    streamed = pieces[0]
    for piece in pieces[1:]:
        streamed.extend(piece)
    return streamed, pipe(text, gen_config=config, do_preprocess=False)


# ---- hidden states, logits, perplexity

@pytest.mark.parametrize("wanted", ["all", "generation"])
def test_hidden_states_are_those_of_the_model(random_pipe, random_model, wanted):
    _, weights, config = random_model
    settings = GenerationConfig(max_new_tokens=4, output_last_hidden_state=wanted, ignore_eos=True)
    for text, ids in zip(TEXTS, IDS, strict=True):
        for response in both_ways(random_pipe, text, settings):
            tokens = [*ids, *response.token_ids[:-1]]
            want = tiny.reference_hidden_states(tokens, weights, config)
            want = want if wanted == "all" else want[len(ids) - 1:]
            assert response.last_hidden_state.dtype == np.float32
            np.testing.assert_allclose(response.last_hidden_state, want, atol=1e-3)
            assert response.logits is None
            assert f"last_hidden_state.shape={want.shape}" in str(response)


def test_each_prompt_gets_what_its_config_asks_for(random_pipe, random_model):
    _, weights, config = random_model
    configs = [GenerationConfig(max_new_tokens=3, ignore_eos=True, output_last_hidden_state="generation",
                                output_logits="all"),
               GenerationConfig(max_new_tokens=2, ignore_eos=True, return_ppl=True),
               GenerationConfig(max_new_tokens=0, output_logits="generation", output_last_hidden_state="all")]
    first, second, third = random_pipe(TEXTS, gen_config=configs, do_preprocess=False)
    assert first.last_hidden_state.shape == (3, tiny.HIDDEN) and first.logits.shape == (4, tiny.VOCAB_SIZE)
    np.testing.assert_allclose(first.last_hidden_state @ weights["lm_head.weight"].T, first.logits[1:], atol=1e-3)
    assert first.ppl is None and second.last_hidden_state is None
    assert second.ppl == pytest.approx(tiny.mean_nll(tiny.reference_logits(IDS[1], weights, config), IDS[1]), rel=1e-4)
    assert f"ppl={second.ppl}" in str(second)
    assert third.token_ids == [] and third.finish_reason == "length"
    assert third.logits.shape == (1, tiny.VOCAB_SIZE) and third.last_hidden_state.shape == (12, tiny.HIDDEN)


def test_return_ppl_is_get_ppl(random_pipe):
    got = random_pipe(TEXTS, gen_config=GenerationConfig(max_new_tokens=2, return_ppl=True), do_preprocess=False)
    assert [response.ppl for response in got] == random_pipe.get_ppl(IDS)
    streamed, whole = both_ways(random_pipe, TEXTS[0], GenerationConfig(max_new_tokens=0, return_ppl=True))
    assert streamed.ppl == whole.ppl == random_pipe.get_ppl(IDS[0])[0]
    one = random_pipe("a", gen_config=GenerationConfig(max_new_tokens=1, return_ppl=True), do_preprocess=False)
    assert one.ppl is None and one.error_code is None


def test_a_prompt_that_is_only_read_may_fill_the_session(random_pipe):
    full = "a" * 256
    response = random_pipe(full, gen_config=GenerationConfig(max_new_tokens=0, return_ppl=True), do_preprocess=False)
    assert response.error_code is None and response.ppl > 0
    refused = random_pipe(full, gen_config=GenerationConfig(max_new_tokens=1), do_preprocess=False)
    assert refused.error_code == "context_length_exceeded"


def test_turbomind_gives_hidden_states_too(random_model):
    with TurboMind.from_pretrained(random_model[0], F32) as model:
        config = GenerationConfig(max_new_tokens=3, output_last_hidden_state="all", ignore_eos=True)
        output, = model.create_instance().stream_infer(1, IDS[0], sequence_end=True, gen_config=config)
    assert output.last_hidden_state.shape == (4, tiny.HIDDEN)


# ---- reward models

def test_reward_scores(reward_model):
    path, weights, config = reward_model
    want = [tiny.reference_reward(ids, weights, config) for ids in IDS]
    with lmdeploy.pipeline(path, F32) as pipe:
        assert pipe.get_reward_score(IDS) == pytest.approx(want, rel=1e-3, abs=1e-3)
        assert pipe.get_reward_score(IDS[2]) == pytest.approx(want[2:], rel=1e-3, abs=1e-3)
        with pytest.raises(ValueError, match=r"input_ids\[1\] has 0 ids"):
            pipe.get_reward_score([[1], []])
        with pytest.raises(NotImplementedError, match="get_reward_score"):
            pipe("hello")
        with pytest.raises(NotImplementedError, match="Qwen2ForRewardModel"):
            pipe.get_ppl([1, 2])


def test_pooling_route(reward_model, tmp_path):
    path, weights, config = reward_model
    with api_server(path, tmp_path / "log", "--model-name", "judge", "--num-threads", "1") as server:
        answer = server.post("/pooling", input=IDS, model="judge").json()
        want = [tiny.reference_reward(ids, weights, config) for ids in IDS]
        assert [entry["data"] for entry in answer["data"]] == pytest.approx(want, rel=2e-2, abs=2e-2)
        assert [entry["index"] for entry in answer["data"]] == [0, 1, 2]
        assert answer["usage"] == {"prompt_tokens": 16, "total_tokens": 16}
        assert answer["id"].startswith("pool-") and answer["model"] == "judge" and answer["object"] == "list"
        one = server.post("/pooling", input="hi").json()["data"]
        assert one[0]["data"] == pytest.approx(tiny.reference_reward([104, 105], weights, config), rel=2e-2, abs=2e-2)
        assert server.post("/pooling", input="hi", model="other").status == 404
        assert server.post("/pooling").status == 400
        refused = server.post("/v1/completions", prompt="hi")
        assert refused.status >= 400 and b"reward model" in refused.body


# ---- callables that change the logits

def only(token):
    def processor(input_ids, scores):
        scores[:] = -np.inf
        scores[token] = 0
        return scores
    return processor


def test_processors_change_their_prompt_alone(pipe):
    configs = [GenerationConfig(max_new_tokens=3, logits_processors=[only(ord("q"))]), GenerationConfig(max_new_tokens=3),
               GenerationConfig(max_new_tokens=3, logits_processors=[only(ord("s"))], logprobs=1)]
    first, second, third = pipe(["a", "a", "a"], gen_config=configs, do_preprocess=False)
    assert (first.text, second.text, third.text) == ("qqq", "bcd", "sss")
    assert third.logprobs[0][ord("s")] < -1, "log probabilities are the model's own"


def test_what_processors_see(pipe):
    seen = []

    def watch(input_ids, scores):
        assert input_ids.dtype == np.int64 and scores.dtype == np.float32 and scores.shape == (tiny.VOCAB_SIZE,)
        seen.append((input_ids.tolist(), scores.argmax()))
        return scores

    config = GenerationConfig(max_new_tokens=2, logits_processors=[watch])
    assert pipe("xy", gen_config=config, do_preprocess=False).text == "z"
    assert [(bytes(ids), token) for ids, token in seen] == [(b"xy", ord("z")), (b"xyz", tiny.IM_END)]


@pytest.mark.parametrize("kind", ["in place", "copy", "list", "row", "float64", "torch"])
def test_what_processors_may_return(pipe, kind):
    torch = pytest.importorskip("torch") if kind == "torch" else None

    def processor(input_ids, scores):
        if kind == "torch":
            scores = torch.from_numpy(scores)
        if kind != "copy":
            scores[ord("k")] += 1000
            return {"list": scores.tolist, "row": lambda: scores[None], "float64": lambda: scores.astype(np.float64)
                    }.get(kind, lambda: scores)()
        changed = scores.copy()
        changed[ord("k")] += 1000
        return changed

    config = GenerationConfig(max_new_tokens=2, logits_processors=[processor, lambda ids, scores: scores])
    assert pipe("a", gen_config=config, do_preprocess=False).text == "kk"


def test_an_array_that_is_kept_stays_as_it_was(pipe):
    kept = []

    def keep(input_ids, scores):
        kept.append((scores, scores[::2], scores.copy(), input_ids, input_ids.copy()))
        return scores

    config = GenerationConfig(max_new_tokens=20, logits_processors=[keep, only(ord("q"))])
    pipe(["a"] * 3, gen_config=config, do_preprocess=False)
    gc.collect()
    assert len(kept) == 60
    for scores, view, scores_then, ids, ids_then in kept:
        np.testing.assert_array_equal(scores, scores_then)
        np.testing.assert_array_equal(view, scores_then[::2])
        np.testing.assert_array_equal(ids, ids_then)


def fails(input_ids, scores):
    raise KeyError("no such word")


class Unprintable(Exception):
    def __str__(self):
        return "\udfff"


def raises(error):
    def processor(input_ids, scores):
        raise error
    return processor


@pytest.mark.parametrize(("processor", "words"), [
    (fails, "logits_processors[1]: KeyError: 'no such word'"),
    (lambda ids, scores: sys.exit("stop"), "SystemExit: stop"),
    (lambda ids: ids, "TypeError"),
    (lambda ids, scores: None, "logits_processors[1]"),
    (lambda ids, scores: "text", "ValueError"),
    (lambda ids, scores: scores + 1j, "complex numbers"),
    (lambda ids, scores: scores[:-1], "logits_processors[1]: returned 259 logits; expected 260"),
    (lambda ids, scores: scores > 0, "of bool, a mask"),
    (raises(RuntimeError("boom \ud800")), "RuntimeError: boom \\ud800"),
    (raises(Unprintable()), "Unprintable: \\udfff"),
    (raises(type("Nameless", (Exception,), {"__str__": lambda self: 5})()), "Nameless: "),
    (lambda ids, scores: scores * np.nan, "nan"),
    (lambda ids, scores: scores - np.inf, "no token is left"),
])
def test_a_failing_processor_ends_its_prompt_alone(pipe, processor, words):
    bad = GenerationConfig(max_new_tokens=4, logits_processors=[lambda ids, scores: scores, processor])
    first, second = pipe(["a", "a"], gen_config=[bad, GenerationConfig(max_new_tokens=4)], do_preprocess=False)
    assert first.finish_reason == "error" and words in first.error_message, first.error_message
    assert second.text == "bcde"


def test_processors_must_be_callable():
    with pytest.raises(TypeError, match="logits_processors"):
        GenerationConfig(logits_processors=[3])


def test_streams_sessions_and_turbomind_have_them(pipe, alphabet_path):
    config = GenerationConfig(max_new_tokens=2, logits_processors=[only(ord("q"))])
    assert "".join(piece.text for piece in pipe.stream_infer(["a"], gen_config=config)) == "qq"
    assert pipe.chat("a", gen_config=config).response.text == "qq"
    with TurboMind.from_pretrained(alphabet_path, session_len=64) as model:
        output, = model.create_instance().stream_infer(1, [97], sequence_end=True, gen_config=config)
    assert output.token_ids == [ord("q")] * 2


@pytest.mark.parametrize("use", [lambda pipe: pipe("hello"), lambda pipe: pipe.get_ppl([1, 2]),
                                 lambda pipe: pipe.chat("hello"), lambda pipe: pipe.close(),
                                 lambda pipe: next(pipe.stream_infer(["a"])), lambda pipe: pipe._core.stats()])
def test_a_processor_cannot_use_its_own_pipeline(pipe, use):
    def ask(input_ids, scores):
        assert pipe.tokenizer.decode([97]) == "a", "what waits for nobody is allowed"
        use(pipe)
        return scores

    response = pipe("a", gen_config=GenerationConfig(max_new_tokens=2, logits_processors=[ask]))
    assert response.finish_reason == "error" and "wait for itself" in response.error_message
    assert pipe("hello").text.startswith("abc")


# ---- nobody waits for the engine's thread with the GIL

def slow(input_ids, scores):
    time.sleep(0.01)
    return scores


ENDLESS = GenerationConfig(max_new_tokens=None, logits_processors=[slow], ignore_eos=True)


def test_closing_while_processors_run(alphabet_path):
    pipe = lmdeploy.pipeline(alphabet_path, session_len=2000, num_threads=1)
    threads = [threading.Thread(target=lambda: pipe("a", gen_config=ENDLESS)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    pipe.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_dropping_everything_while_processors_run(alphabet_path):
    pipe = lmdeploy.pipeline(alphabet_path, session_len=2000, num_threads=1)
    pieces = pipe.stream_infer(["a", "b"], gen_config=ENDLESS)
    next(pieces)
    del pieces, pipe
    gc.collect()


def test_the_last_reference_may_go_in_a_processor(alphabet_path):
    held = {}
    gone = threading.Event()

    def drop(input_ids, scores):
        held.clear()
        gc.collect()
        gone.set()
        return scores

    held["pipe"] = lmdeploy.pipeline(alphabet_path, session_len=2000, num_threads=1)
    held["pieces"] = held["pipe"].stream_infer(["a"], gen_config=GenerationConfig(logits_processors=[drop]))
    assert gone.wait(30)


def test_many_threads_with_processors(pipe):
    texts = {}

    def ask(letter):
        config = GenerationConfig(max_new_tokens=8, logits_processors=[only(ord(letter))])
        texts[letter] = [response.text for response in pipe(["a"] * 4, gen_config=config)]

    threads = [threading.Thread(target=ask, args=(letter,)) for letter in "bdfhj"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert texts == {letter: [letter * 8] * 4 for letter in "bdfhj"}


def test_fork_while_processors_run(pipe):
    pieces = pipe.stream_infer(["a"], gen_config=GenerationConfig(max_new_tokens=100, logits_processors=[slow]))
    next(pieces)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del pieces
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(pieces)[-1].finish_reason == "stop"


def test_the_interpreter_may_end_while_processors_run(alphabet_path):
    import subprocess
    code = ("import lmdeploy, time\n"
            f"pipe = lmdeploy.pipeline({alphabet_path!r}, session_len=2000, num_threads=1)\n"
            "slow = lambda ids, scores: time.sleep(0.01) or scores\n"
            "config = lmdeploy.GenerationConfig(max_new_tokens=None, ignore_eos=True, logits_processors=[slow])\n"
            "pieces = pipe.stream_infer(['a', 'b'], gen_config=config)\nnext(pieces)\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
