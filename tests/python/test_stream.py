"""stream_infer, conversations, and ending them early."""
import threading
import time

import pytest

import lmdeploy
import tiny
from lmdeploy import GenerationConfig
from lmdeploy.errors import BusyError

LONG = GenerationConfig(max_new_tokens=50_000, ignore_eos=True)


def pace(input_ids, scores):
    """A logits processor that keeps an answer from being done before anybody looks."""
    time.sleep(0.002)
    return scores


def becomes_true(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()


def wait_until_idle(pipe):
    """Whether nothing runs or waits any more, within a minute."""
    return becomes_true(lambda: pipe._core.stats().running == pipe._core.stats().waiting == 0)


def test_pieces_join_to_the_whole_answer(pipe):
    whole = pipe("hello")
    pieces = list(pipe.stream_infer("hello"))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert sum((piece.token_ids for piece in pieces), []) == whole.token_ids
    assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish_reason == "stop" and pieces[-1].generate_token_len == 26


def test_prompts_are_told_apart_by_index(pipe):
    texts = {}
    for piece in pipe.stream_infer(list("awk"), do_preprocess=False):
        assert piece.session_id == piece.index
        texts[piece.index] = texts.get(piece.index, "") + piece.text
    assert texts == {0: "bcdefghijklmnopqrstuvwxyz", 1: "xyz", 2: "lmnopqrstuvwxyz"}


def test_stream_response_off_gives_each_answer_whole(pipe):
    answers = list(pipe.stream_infer(list("aw"), do_preprocess=False, stream_response=False))
    assert {answer.index: answer.text for answer in answers} == {0: "bcdefghijklmnopqrstuvwxyz", 1: "xyz"}


def test_characters_are_never_cut(endless):
    config = GenerationConfig(max_new_tokens=17)
    pieces = [piece.text for piece in endless.stream_infer("!", gen_config=config, do_preprocess=False)]
    assert not any("\ufffd" in text for text in pieces[:-1])
    assert "".join(pieces) == endless("!", gen_config=config, do_preprocess=False).text
    assert "".join(pieces).startswith(tiny.EMOJI.decode() + "!")


def test_stop_words_are_held_back(pipe):
    config = GenerationConfig(stop_words=["efg"])
    pieces = [piece.text for piece in pipe.stream_infer("a", gen_config=config, do_preprocess=False)]
    assert "".join(pieces) == "bcd"


def test_bad_arguments_raise_at_the_call_and_not_later(pipe):
    with pytest.raises(ValueError, match="2 entries for 1 prompts"):
        pipe.stream_infer("x", gen_config=[GenerationConfig()] * 2)
    with pytest.raises(ValueError, match="sessions has 1"):
        pipe.stream_infer(["x", "y"], sessions=pipe.session())


def test_f53_dropping_a_stream_frees_its_place(endless_path):
    with lmdeploy.pipeline(endless_path, max_batch_size=1, session_len=60000, num_threads=1) as pipe:
        free = pipe._core.stats().free_blocks
        for _ in range(200):
            stream = pipe.stream_infer("a", gen_config=LONG, do_preprocess=False)
            waiting = pipe.stream_infer("b", gen_config=LONG, do_preprocess=False)
            for _ in range(3):
                next(stream)
            del stream, waiting  # one runs, one still waits in the queue
            answer = pipe("x", gen_config=GenerationConfig(max_new_tokens=2), do_preprocess=False)
            assert answer.text == "yz"
        assert wait_until_idle(pipe)
        stats = pipe._core.stats()
        assert stats.aborted == 400
        assert stats.free_blocks + stats.cached_blocks == free and stats.used_blocks == 0


def test_closing_the_generator_cancels(endless):
    stream = endless.stream_infer(["a"] * 3, gen_config=LONG, do_preprocess=False)
    next(stream)
    stream.close()
    assert wait_until_idle(endless)


def test_chat_keeps_the_conversation(pipe):
    session = pipe.chat("one")
    assert session.response.text == "abcdefghijklmnopqrstuvwxyz"
    first_step = session.step
    again = pipe.chat("two", session=session, gen_config=GenerationConfig(max_new_tokens=2))
    assert again is session
    assert session.history == [("one", "abcdefghijklmnopqrstuvwxyz"), ("two", "ab")]
    assert session.response.finish_reason == "length" and session.step > first_step > 0
    assert session.response.session_id == session.session_id
    other = pipe.chat("three")
    assert other.session_id != session.session_id and len(other.history) == 1


def test_chat_is_the_same_as_sending_all_messages(pipe):
    config = GenerationConfig(max_new_tokens=5, output_logits="generation")
    session = pipe.chat("two", pipe.chat("one"), gen_config=config)
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": session.history[0][1]},
                {"role": "user", "content": "two"}]
    alone = pipe(messages, gen_config=config)
    assert session.response.text == alone.text
    assert session.response.logits == pytest.approx(alone.logits, abs=1e-3)


def test_streaming_chat_updates_the_session_at_its_end(endless):
    session = endless.session()
    stream = endless.chat("one", session, GenerationConfig(max_new_tokens=300), stream_response=True)
    first = next(stream)
    if first.finish_reason is None:  # a fast engine may be done before the first look
        assert session.history == [] and session.response is None
    text = first.text + "".join(piece.text for piece in stream)
    assert session.history == [("one", text)] and session.response.text == text


def test_leaving_a_streaming_chat_aborts_it(endless):
    session = endless.session()
    stream = endless.chat("one", session, LONG, stream_response=True)
    next(stream)
    stream.close()
    del stream
    assert session.history == [] and wait_until_idle(endless)
    endless.chat("two", session, GenerationConfig(max_new_tokens=3))
    assert session.history == [("two", "abc")]


def test_abort_ends_a_turn_with_what_there_is(endless):
    session = endless.session()
    stream = endless.chat("one", session, LONG, stream_response=True)
    pieces = [next(stream)]
    session.abort()
    pieces += list(stream)
    assert pieces[-1].finish_reason == "abort"
    assert session.response.finish_reason == "abort" and len(session.history) == 1


def test_a_session_runs_one_turn_at_a_time(endless):
    session = endless.session()
    short = GenerationConfig(max_new_tokens=2)
    endless.chat("zero", session, short)
    paced = GenerationConfig(max_new_tokens=200, logits_processors=[pace])
    stream = endless.chat("one", session, paced, stream_response=True)
    next(stream)
    for start in (lambda: endless.chat("two", session, short),
                  lambda: endless.stream_infer(["two"], short, sessions=session),
                  lambda: endless.stream_infer(["x", "two"], short, sessions=[endless.session(), session])):
        with pytest.raises(BusyError, match="runs a turn already"):
            start()
    assert list(stream)[-1].finish_reason == "length", "the turn that runs knows nothing of it"
    assert endless.chat("two", session, short).response.text == "ab"
    assert [prompt for prompt, _ in session.history] == ["zero", "one", "two"]


def test_one_of_many_threads_has_its_turn(endless):
    session = endless.session()
    outcomes = []

    def ask():
        try:
            outcomes.append(endless.chat("one", session, GenerationConfig(max_new_tokens=2000)).response.finish_reason)
        except BusyError:
            outcomes.append("busy")

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(outcomes) <= {"length", "busy"} and "length" in outcomes and len(outcomes) == 6
    assert len(session.history) == outcomes.count("length")
    assert endless.chat("two", session, GenerationConfig(max_new_tokens=2)).response.text == "ab"


def test_a_session_is_free_once_its_stream_is_dropped(endless):
    session = endless.session()
    twice = [session, session]
    with pytest.raises(BusyError):
        endless.stream_infer(["a", "b"], LONG, sessions=twice)
    for use in (lambda stream: None, next, lambda stream: stream.close()):
        stream = endless.chat("one", session, LONG, stream_response=True)
        use(stream)
        del stream
        assert endless.chat("two", session, GenerationConfig(max_new_tokens=2)).response.text == "ab"
        session.close()
    assert wait_until_idle(endless)


def test_a_closed_session_forgets_the_turn_that_ran(endless):
    session = endless.session()
    stream = endless.chat("one", session, LONG, stream_response=True)
    next(stream)
    session.close()
    assert endless.chat("two", session, GenerationConfig(max_new_tokens=2)).response.text == "ab"
    assert list(stream)[-1].finish_reason == "abort"
    assert session.history == [("two", "ab")]
    with pytest.raises(AttributeError):
        session.history = 5


def test_session_object(pipe):
    with pipe.session(GenerationConfig(max_new_tokens=3)) as session:
        assert "".join(piece.text for piece in session("one")) == "abc"
        assert session("two", stream_response=False).text == "abc"
        assert repr(session) == f"Session(session_id={session.session_id}, step={session.step}, rounds=2)"
        assert str(session).endswith("History:\nUSER:\none\nASSISTANT:\nabc\nUSER:\ntwo\nASSISTANT:\nabc\n")
    assert (session.history, session.response, session.step) == ([], None, 0)
    assert pipe.chat("one", session).response.text == "abcdefghijklmnopqrstuvwxyz"
    session.close()


def test_closed_sessions_leave_nothing_in_the_engine(alphabet_path):
    with lmdeploy.pipeline(alphabet_path, num_threads=1) as pipe:
        sessions = [pipe.chat("one") for _ in range(3)]
        assert pipe._core.stats().sessions == 3
        for session in sessions:
            session.close()
        assert becomes_true(lambda: pipe._core.stats().sessions == 0)


def test_sessions_of_stream_infer(pipe):
    sessions = [pipe.session(), pipe.session()]
    for turn in ("one", "two"):
        list(pipe.stream_infer([turn, turn], sessions=sessions, gen_config=GenerationConfig(max_new_tokens=2)))
    assert [session.history for session in sessions] == [[("one", "ab"), ("two", "ab")]] * 2


def test_chat_takes_text_only(pipe):
    for prompt in (["a", "b"], [{"role": "user", "content": "x"}], 5):
        with pytest.raises(TypeError):
            pipe.chat(prompt)


def test_f51_cache_hits_are_visible(alphabet_path):
    with lmdeploy.pipeline(alphabet_path, enable_prefix_caching=True, cache_block_seq_len=64, num_threads=1) as pipe:
        def cached(length):
            return pipe("q" * length, gen_config=GenerationConfig(max_new_tokens=2), do_preprocess=False).cached_tokens

        assert cached(40) == 0 and cached(40) == 0
        assert cached(200) == 0 and 192 <= cached(200) <= 199
        last = list(pipe.stream_infer("q" * 200, do_preprocess=False))[-1]
        assert 192 <= last.cached_tokens <= 199
        stats = pipe._core.stats()
        assert stats.prefix_queried_tokens > stats.prefix_hit_tokens >= 2 * 192
    with lmdeploy.pipeline(alphabet_path, num_threads=1) as pipe:
        assert [pipe("q" * 200, do_preprocess=False).cached_tokens for _ in range(2)] == [0, 0]
