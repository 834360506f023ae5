"""F82: event loops, threads, async use; Ctrl-C; forks."""
import asyncio
import os
import signal
import string
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import lmdeploy
from lmdeploy import GenerationConfig
from lmdeploy._stream import read_async
from lmdeploy.errors import BusyError, InvalidArgumentError

ALPHABET = string.ascii_lowercase
LONG = GenerationConfig(max_new_tokens=50_000, ignore_eos=True)


async def collect(stream):
    return [piece async for piece in stream]


def test_f82_inside_a_running_event_loop(pipe):
    async def handler():
        return pipe("hello").text, [piece.text for piece in pipe.stream_infer("hello")]

    text, pieces = asyncio.run(handler())
    assert text == "".join(pieces) == ALPHABET


def test_f82_from_many_threads_at_once(pipe):
    answers = {}

    def ask(letter):
        answers[letter] = [pipe(letter, do_preprocess=False).text for _ in range(5)]

    threads = [threading.Thread(target=ask, args=(letter,)) for letter in ALPHABET[:8]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {letter: [ALPHABET[i + 1:]] * 5 for i, letter in enumerate(ALPHABET[:8])}


def test_f82_async_answers_do_not_block_the_loop(endless):
    async def tick(gaps):
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    async def main():
        gaps = []
        ticker = asyncio.create_task(tick(gaps))
        config = GenerationConfig(max_new_tokens=1000)
        answers = await asyncio.gather(*(collect(endless.generate(f"prompt {i}", gen_config=config)) for i in range(8)))
        ticker.cancel()
        return gaps, answers

    gaps, answers = asyncio.run(main())
    for pieces in answers:
        text = "".join(piece.response for piece in pieces)
        assert text == (ALPHABET * 40)[:1000] and pieces[-1].finish_reason == "length"
    # One busy machine may pause any process for a while; a loop that waits for an answer would tick once.
    assert len(gaps) > 5 and sorted(gaps)[len(gaps) // 2] < 0.1


def test_f82_a_stream_that_is_always_ready_lets_others_run():
    class AlwaysReady:
        num_open = 1
        left = 500

        def fileno(self):
            return -1

        def next(self, timeout):
            self.left -= 1
            self.num_open = int(self.left > 0)
            return (0, self.left) if self.left > 0 else None

        def cancel_all(self):
            pass

    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        pieces = await collect(read_async(AlwaysReady()))
        task.cancel()
        return turns, len(pieces)

    turns, pieces = asyncio.run(main())
    assert pieces == 499 and turns >= 400


def test_a_slow_reader_costs_nothing(endless):
    async def main():
        stream = endless.generate("a", gen_config=GenerationConfig(max_new_tokens=2000, ignore_eos=True))
        await anext(stream)
        await asyncio.sleep(0.2)  # the answer is complete meanwhile and waits to be read
        before = time.thread_time()
        await asyncio.sleep(0.3)
        spent = time.thread_time() - before
        return spent, [piece async for piece in stream]

    spent, pieces = asyncio.run(main())
    assert spent < 0.1 and pieces[-1].generate_token_len == 2000


def test_async_answers_go_to_their_callers(pipe):
    async def main():
        return await asyncio.gather(*(collect(pipe.generate(letter, do_preprocess=False)) for letter in ALPHABET[:10]))

    texts = ["".join(piece.text for piece in pieces) for pieces in asyncio.run(main())]
    assert texts == [ALPHABET[i + 1:] for i in range(10)]


def test_async_whole_answer(pipe):
    pieces = asyncio.run(collect(pipe.generate("x", do_preprocess=False, stream_response=False)))
    assert [(piece.text, piece.finish_reason) for piece in pieces] == [("yz", "stop")]


def test_async_conversation(pipe):
    async def main():
        config = GenerationConfig(max_new_tokens=3)
        first = await collect(pipe.generate("one", 7, config, sequence_end=False))
        second = await collect(pipe.generate("two", 7, config, sequence_start=False))
        with pytest.raises(FileNotFoundError, match="session 7"):
            await collect(pipe.generate("three", 7, config, sequence_start=False))
        return first, second

    first, second = asyncio.run(main())
    assert "".join(p.text for p in first) == "".join(p.text for p in second) == "abc"
    assert second[-1].session_id == 7


def test_stop_session_ends_an_async_answer(endless):
    async def main():
        pieces = []
        async for piece in endless.generate("one", session_id=3, gen_config=LONG):
            pieces.append(piece)
            await endless.stop_session(3)
        return pieces

    pieces = asyncio.run(main())
    assert pieces[-1].finish_reason == "abort" and pieces[-1].generate_token_len < LONG.max_new_tokens


def test_stop_and_end_session_need_no_await(endless):
    async def main():
        last = None
        async for piece in endless.generate("one", 3, LONG, sequence_end=False):
            last = piece
            endless.stop_session(3)
        await endless.stop_session(4)
        await asyncio.gather(endless.end_session(3), endless.end_session(3))
        return last.finish_reason

    assert asyncio.run(main()) == "abort" and endless._sessions == {}
    assert asyncio.run(endless.stop_session(3)) is None
    endless.end_session(3)


@pytest.mark.parametrize(("arguments", "words"), [
    *(({"session_id": value}, "session_id is") for value in (-1, "x", 1.5, float("nan"), True, 10**30, [1])),
    *(({"step": value}, "step is") for value in ("x", -1, 10**9, 2.5)),
    ({"sequence_start": 5}, "sequence_start is 5"), ({"sequence_end": "x"}, "sequence_end is 'x'"),
    ({"stream_response": 5}, "stream_response is 5")])
def test_generate_checks_its_arguments(pipe, arguments, words):
    with pytest.raises(InvalidArgumentError, match=words):
        asyncio.run(collect(pipe.generate("one", **arguments)))


@pytest.mark.parametrize("session_id", [-1, "x", 1.5, None, True, [1]])
def test_stop_and_end_session_check_the_id(pipe, session_id):
    for call in (pipe.stop_session, pipe.end_session):
        with pytest.raises(InvalidArgumentError, match="session_id is"):
            call(session_id)


def test_generate_on_a_busy_conversation(endless):
    async def main():
        first = endless.generate("one", 5, LONG, sequence_end=False)
        await anext(first)
        with pytest.raises(BusyError):
            await collect(endless.generate("two", 5, LONG, sequence_start=False))
        endless.stop_session(5)
        last = [piece async for piece in first][-1]
        endless.end_session(5)
        return last.finish_reason

    assert asyncio.run(main()) == "abort"


def test_a_cancelled_task_frees_the_engine(endless):
    async def main():
        task = asyncio.create_task(collect(endless.generate("one", gen_config=LONG)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aborted = endless._core.stats().aborted
    asyncio.run(main())
    until = time.monotonic() + 60
    while endless._core.stats().running and time.monotonic() < until:
        time.sleep(0.005)
    assert (endless._core.stats().running, endless._core.stats().aborted) == (0, aborted + 1)


def test_generate_takes_one_prompt(pipe):
    with pytest.raises(TypeError, match="one prompt"):
        asyncio.run(collect(pipe.generate(["a", "b"])))


CTRL_C = """
    import os, signal, sys, threading, time
    import lmdeploy
    from lmdeploy import GenerationConfig
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when the tests run in a background job
    pipe = lmdeploy.pipeline(sys.argv[1], session_len=200000, max_batch_size=4, num_threads=1)
    config = GenerationConfig(max_new_tokens=150000, ignore_eos=True)

    def press_ctrl_c():
        while not pipe._core.stats().running:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c).start()
    try:
        {call}
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted")
    until = time.monotonic() + 30
    while pipe._core.stats().running and time.monotonic() < until:
        time.sleep(0.01)
    stats = pipe._core.stats()
    print("running", stats.running, "aborted" if stats.aborted else "none aborted",
          pipe("x", request_output_len=2, do_preprocess=False).text)
"""


@pytest.mark.parametrize("call", ["pipe(['a'] * 8, gen_config=config)",
                                  "list(pipe.stream_infer('a', gen_config=config))",
                                  "pipe.chat('a', gen_config=config)",
                                  "pipe.get_ppl([[1, 2, 3] * 60000] * 2)"])
def test_ctrl_c_stops_the_call_and_nothing_else(endless_path, tmp_path, call):
    code = textwrap.dedent(CTRL_C).format(call=call)
    done = subprocess.run([sys.executable, "-c", code, endless_path], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("interrupted\nrunning 0 aborted yz\n", 0), done.stderr


FORK = """
    import os, sys
    import lmdeploy
    pipe = lmdeploy.pipeline(sys.argv[1], num_threads=1)
    stream = pipe.stream_infer("a")
    next(stream)
    child = os.fork()
    if child == 0:
        try:
            pipe("x")
        except RuntimeError as error:
            print(error, flush=True)
        del stream
        pipe.close()
        del pipe
        sys.exit(5)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), pipe("x", do_preprocess=False).text)
"""


def test_a_fork_cannot_use_the_pipeline_and_does_not_hang(alphabet_path, tmp_path):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK), alphabet_path],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path)
    message, end = done.stdout.splitlines()
    assert "cannot be used in its fork" in message and "spawn" in message
    assert end == "5 yz", done.stderr


MANY_FORKS = """
    import os, sys
    import lmdeploy
    pipe = lmdeploy.pipeline(sys.argv[1], num_threads=1)
    for turn in range(150):
        stream = pipe.stream_infer("a", lmdeploy.GenerationConfig(max_new_tokens=2000))
        next(stream)
        child = os.fork()
        if child == 0:
            try:
                next(stream)
            except RuntimeError:
                pipe.close()
                del stream
                os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        stream.close()
"""


def test_a_fork_does_not_wait_for_what_the_engine_thread_held(endless_path, tmp_path):
    """The engine thread is in the middle of something in each of these forks, a locked mutex for instance."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(MANY_FORKS), endless_path],
                          capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_may_end_without_closing(alphabet_path, tmp_path):
    code = ("import sys, lmdeploy\npipe = lmdeploy.pipeline(sys.argv[1], num_threads=1)\n"
            "stream = pipe.stream_infer('a')\nprint(next(stream).text)")
    done = subprocess.run([sys.executable, "-c", code, alphabet_path], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", ["pipe('a', config)", "list(pipe.stream_infer('a', config))",
                                  "pipe.chat('a', gen_config=config)"])
@pytest.mark.parametrize("processors", ["[]", "[slow]"])
def test_a_script_may_end_while_a_daemon_thread_generates(endless_path, call, processors, tmp_path):
    """A thread that comes back from native code when the interpreter has gone must not end the process."""
    code = ("import sys, threading, time, lmdeploy\n"
            "pipe = lmdeploy.pipeline(sys.argv[1], session_len=60000, num_threads=1)\n"
            "def slow(ids, scores):\n    time.sleep(0.005)\n    return scores\n"
            f"config = lmdeploy.GenerationConfig(max_new_tokens=50000, ignore_eos=True, logits_processors={processors})\n"
            f"for _ in range(8):\n    threading.Thread(target=lambda: {call}, daemon=True).start()\n"
            "time.sleep(0.2)\n")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code, endless_path], capture_output=True, text=True, timeout=120,
                              cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def num_threads():
    return len(os.listdir("/proc/self/task"))


def wait_for_threads(at_most):
    """The kernel lists a thread for a moment after it has been joined."""
    until = time.monotonic() + 60
    while num_threads() > at_most and time.monotonic() < until:
        time.sleep(0.01)
    assert num_threads() <= at_most


def test_f57_a_pipeline_can_be_closed_and_another_one_opened(alphabet_path, endless_path):
    with lmdeploy.pipeline(alphabet_path) as pipe:
        pipe("x")
    before = num_threads()
    for turn in range(10):
        with lmdeploy.pipeline((alphabet_path, endless_path)[turn % 2], num_threads=2) as pipe:
            assert pipe("x", gen_config=GenerationConfig(max_new_tokens=2), do_preprocess=False).text == "yz"
    wait_for_threads(before)
    pipe.close()  # closed by `with` already
    for use in (lambda: pipe("x"), lambda: pipe.stream_infer("x"), lambda: pipe.chat("x"),
                lambda: pipe.get_ppl([1, 2])):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    assert pipe.session_len > 0  # what describes the model stays


def test_f57_close_ends_what_runs(endless_path):
    pipe = lmdeploy.pipeline(endless_path, session_len=60000, num_threads=1)
    stream = pipe.stream_infer("a", gen_config=LONG)
    next(stream)
    closing = threading.Timer(0.05, pipe.close)
    closing.start()
    last = list(stream)[-1]
    closing.join()
    assert last.finish_reason == "abort"
