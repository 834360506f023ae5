"""`lmdeploy serve api_server` with OpenAI's own client: what the client sees for good and bad requests."""
import asyncio
import json

import pytest
import tiny
from api_server import api_server

import lmdeploy

openai = pytest.importorskip("openai")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HELLO = [{"role": "user", "content": "hi"}]
CALL_PIECES = ["Sure. ", "<tool_call>\n", '{"name": "f", "argu', 'ments": {}}', "\n</tool_call>", "\n<tool_call>",
               '\n{"name": "g", ', '"arguments": {"city": ', '"Oslo"}}\n', "</tool_call>\n"]
TOOLS = [{"type": "function", "function": {"name": name, "description": "", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}} for name in ("f", "g")]


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--model-name", "letters,abc", "--session-len", "256",
                    "--enable-prefix-caching", "--num-threads", "1") as started:
        yield started


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(client):
    """One chat, greedy unless the test says otherwise."""
    def ask_with(messages=HELLO, **fields):
        return client.chat.completions.create(model="letters", messages=messages, **{"temperature": 0, **fields})
    return ask_with


@pytest.fixture(scope="module")
def complete(client):
    def complete_with(prompt="a", **fields):
        return client.completions.create(model="letters", prompt=prompt, **{"temperature": 0, **fields})
    return complete_with


def text_of(answer) -> str:
    return answer.choices[0].message.content


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert names == ["letters", "abc"]


def test_chat(ask):
    answer = ask()
    assert text_of(answer) == LETTERS and answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-") and answer.model == "letters"
    usage = answer.usage
    assert usage.completion_tokens == 26 and usage.total_tokens == usage.prompt_tokens + 26


def test_f17_temperature(ask):
    texts = {text_of(ask()) for _ in range(3)} | {text_of(ask(temperature=0.7, extra_body={"top_k": 1}))}
    assert texts == {LETTERS}
    for temperature in (1.2, 2.0):
        ask(temperature=temperature, max_tokens=2)
    for temperature in (-0.1, 2.1, "hot"):
        with pytest.raises(openai.BadRequestError) as refusal:
            ask(temperature=temperature)
        assert refusal.value.param == "temperature"


def test_f19_seed(ask):
    def texts(count, **fields):
        return [text_of(ask(temperature=2, max_tokens=12, extra_body={"ignore_eos": True, "top_k": 0}, **fields))
                for _ in range(count)]
    assert len(set(texts(10))) >= 8
    first, second = set(texts(3, seed=11)), set(texts(3, seed=12))
    assert len(first) == len(second) == 1 and first != second


@pytest.mark.parametrize("top", [None, 0, 3, 5])
def test_f20_f21_f23_logprobs_of_chats(ask, top):
    fields = {} if top is None else {"top_logprobs": top}
    answer = ask(logprobs=True, max_tokens=6, **fields)
    entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == text_of(answer) == LETTERS[:6]
    for entry in entries:
        assert entry.bytes == list(entry.token.encode())
        assert len(entry.top_logprobs) == (top or 0)
        values = [other.logprob for other in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        if top:
            assert entry.top_logprobs[0].token == entry.token and values[0] == entry.logprob
    assert len({entry.logprob for entry in entries}) > 1


def test_f21_logprobs_that_end_by_a_stop_word_rebuild_the_text(ask):
    answer = ask(logprobs=True, stop=["d"])
    assert text_of(answer) == "abc"
    tokens = [entry.token for entry in answer.choices[0].logprobs.content]
    assert len(tokens) == answer.usage.completion_tokens and "".join(tokens) == "abcd"


def test_f21_bad_logprobs(ask, complete):
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(logprobs=False, top_logprobs=2)
    assert refusal.value.param == "top_logprobs"
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(logprobs=-1)
    assert refusal.value.param == "logprobs"


@pytest.mark.parametrize("top", [0, 2])
def test_f21_logprobs_of_completions(complete, top):
    answer = complete(logprobs=top, max_tokens=4)
    found = answer.choices[0].logprobs
    assert found.tokens == list("bcde") and found.text_offset == [0, 1, 2, 3]
    assert len(found.token_logprobs) == len(found.top_logprobs) == 4
    assert all(len(others) == max(top, 1) for others in found.top_logprobs)


def test_f23_a_token_that_is_part_of_a_character(complete, ask):
    choice = complete("!", max_tokens=5, logprobs=0).choices[0]
    assert choice.text == "\N{GRINNING FACE}!"
    assert choice.logprobs.tokens == ["\N{REPLACEMENT CHARACTER}"] * 4 + ["!"]
    entries = ask(messages="!", max_tokens=5, logprobs=True).choices[0].logprobs.content
    assert bytes(byte for entry in entries for byte in entry.bytes).decode() == choice.text


def test_f24_n(ask, complete):
    answer = ask(n=3, temperature=1, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens <= 24
    one = ask(max_tokens=8)
    assert answer.usage.prompt_tokens == one.usage.prompt_tokens
    first, second = ask(n=2, max_tokens=8).choices
    assert first.message.content == second.message.content == LETTERS[:8]
    ends = {}
    for chunk in ask(n=3, max_tokens=8, stream=True):
        choice = chunk.choices[0]
        if choice.finish_reason:
            assert choice.index not in ends
            ends[choice.index] = choice.finish_reason
    assert ends == {0: "length", 1: "length", 2: "length"}
    assert len(complete(n=2).choices) == 2
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(n=0)
    assert refusal.value.param == "n"


def test_f25_logit_bias(ask):
    assert text_of(ask(logit_bias={"97": -100}, max_tokens=3))[0] != "a"
    assert text_of(ask(logit_bias={"113": 100}, max_tokens=5)) == "qqqqq"
    for bias in ({"999999999": 1}, {"97": 101}, {"a": 1}, {"97": "much"}):
        with pytest.raises(openai.BadRequestError) as refusal:
            ask(logit_bias=bias)
        assert refusal.value.param.startswith("logit_bias")


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 4}, {"stop": ["cd"]}, {"n": 2, "max_tokens": 4}])
def test_f27_usage_comes_once_at_the_end(ask, fields):
    *chunks, last = ask(stream=True, stream_options={"include_usage": True}, **fields)
    assert last.choices == [] and all(chunk.usage is None for chunk in chunks)
    whole = ask(**fields).usage
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (
        whole.prompt_tokens, whole.completion_tokens, whole.total_tokens)


def test_f28_role_once_then_plain_deltas(server, ask):
    chunks = [json.loads(event) for event in server.events("/v1/chat/completions", model="letters", messages=HELLO,
                                                           max_tokens=5, temperature=0)[:-1]]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant" and deltas[-1] == {}
    assert all(set(delta) == {"content"} for delta in deltas[1:-1])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
    assert streamed == LETTERS


def test_stop_words(ask, complete):
    for stop, text in (("d", "abc"), (["xyz", "mn"], "abcdefghijkl"), (["cd"], "ab")):
        answer = ask(stop=stop)
        assert text_of(answer) == text and answer.choices[0].finish_reason == "stop"
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stop=stop, stream=True))
        assert streamed == text
    assert text_of(ask(stop="cd", extra_body={"include_stop_str_in_output": True})) == "abcd"
    assert complete(stop=["d"]).choices[0].text == "bc"


@pytest.mark.parametrize("size", [255, 256, 300])
def test_f40_a_prompt_that_does_not_fit(client, size):
    fields = {"model": "letters", "prompt": [97] * size, "max_tokens": 2000, "temperature": 0}
    if size == 255:
        answer = client.completions.create(**fields)
        assert answer.usage.completion_tokens == 1 and answer.choices[0].finish_reason == "length"
        return
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.completions.create(**fields, stream=stream)
        assert refusal.value.code == "context_length_exceeded"
        assert str(size) in refusal.value.message and "256" in refusal.value.message


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 100000}])
def test_f41_max_tokens_is_clamped(client, limit):
    fields = {"model": "letters", "messages": HELLO, "temperature": 0, **limit}
    answer = client.chat.completions.create(**fields)
    assert text_of(answer) == LETTERS and answer.choices[0].finish_reason == "stop"
    endless = client.chat.completions.create(**fields, extra_body={"ignore_eos": True})
    assert endless.usage.total_tokens == 256 and endless.choices[0].finish_reason == "length"


def test_f51_cached_tokens(client, server):
    prompt = [(i * 7) % 90 + 32 for i in range(200)]
    fields = {"model": "letters", "prompt": prompt, "max_tokens": 1}
    first, second = (client.completions.create(**fields).usage for _ in range(2))
    assert first.prompt_tokens_details.cached_tokens == 0
    assert 192 <= second.prompt_tokens_details.cached_tokens <= 199
    *_, last = client.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    assert 192 <= last.usage.prompt_tokens_details.cached_tokens <= 199
    assert server.metrics()["prefix_cache_hit_rate"] > 0


def test_f69_errors_have_the_right_class(client, server):
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="letters", messages=3)
    assert refusal.value.param == "messages"
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="letters", input="text")
    with pytest.raises(openai.NotFoundError):
        client.post("/nothing", cast_to=object)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="letters", messages=HELLO, stream=True, top_p=0)


def test_f72_keys_of_newer_clients(ask):
    for fields in ({"max_completion_tokens": 3}, {"max_completion_tokens": 3, "max_tokens": 9}):
        assert text_of(ask(**fields)) == "abc"
    system, developer = (ask([{"role": role, "content": "Be kind."}, *HELLO]).usage.prompt_tokens
                         for role in ("system", "developer"))
    assert system == developer > ask().usage.prompt_tokens
    answer = ask([{"role": "user", "content": "hi", "name": "Ann"},
                  {"role": "assistant", "content": "a", "refusal": None}, *HELLO],
                 metadata={"a": "b"}, store=False, parallel_tool_calls=True, user="u", extra_body={"x_foo": 1})
    assert text_of(answer) == LETTERS
    assert text_of(ask([{"role": "user", "content": [{"type": "text", "text": "hi"}]}])) == LETTERS


@pytest.mark.parametrize("fields", [{"functions": [{"name": "f"}]}, {"function_call": "auto"},
                                    {"modalities": ["text", "audio"]}, {"audio": {"voice": "alloy", "format": "wav"}},
                                    {"web_search_options": {}}])
def test_f72_what_would_change_the_answer_is_refused_by_name(ask, fields):
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(extra_body=fields)
    assert refusal.value.param in fields


def test_f73_model_names(client, server):
    for name in ("letters", "abc"):
        assert client.chat.completions.create(model=name, messages=HELLO, max_tokens=1).model == name
    for name in ("wrong", "Letters"):
        with pytest.raises(openai.NotFoundError) as refusal:
            client.chat.completions.create(model=name, messages=HELLO)
        assert refusal.value.code == "model_not_found" and "letters, abc" in refusal.value.message
    assert server.post("/v1/chat/completions", messages=HELLO, max_tokens=1).json()["model"] == "letters"


def test_f73_the_default_name_is_the_path(alphabet_path, tmp_path):
    with api_server(alphabet_path, tmp_path / "log", "--session-len", "64") as started:
        assert [card["id"] for card in started.request("GET", "/v1/models").json()["data"]] == [alphabet_path]


def test_completions(complete):
    answer = complete("w")
    assert answer.choices[0].text == "xyz" and answer.choices[0].finish_reason == "stop"
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.usage.prompt_tokens == 1 and answer.usage.completion_tokens == 3
    assert complete("w", echo=True).choices[0].text == "wxyz"
    assert complete([119]).choices[0].text == "xyz"
    assert complete("a").usage.completion_tokens == 16
    assert "".join(chunk.choices[0].text for chunk in complete("w", echo=True, stream=True)) == "wxyz"


def test_list_prompts_keep_their_order(complete):
    prompts = ["w", "t", "x", [118], "y"]
    with pytest.raises(openai.BadRequestError):
        complete(prompts)  # texts and ids do not mix
    prompts[3] = "v"
    texts = ["xyz", "uvwxyz", "yz", "wxyz", "z"]
    answer = complete(prompts)
    assert [choice.text for choice in answer.choices] == texts
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4]
    assert answer.usage.prompt_tokens == 5
    streamed = [""] * 5
    for chunk in complete(prompts, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == texts
    assert [choice.text for choice in complete([[119], [120]]).choices] == ["xyz", "yz"]
    assert [choice.text for choice in complete(["w", "x"], n=2).choices] == ["xyz", "xyz", "yz", "yz"]


def test_async_client(server):
    async def talk():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            async def one(i):
                stream = await client.chat.completions.create(model="letters", messages=HELLO, temperature=0,
                                                              max_tokens=i + 1, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert await asyncio.gather(*map(one, range(26))) == [LETTERS[:i + 1] for i in range(26)]
            answer = await client.chat.completions.create(model="letters", messages=HELLO, temperature=0)
            assert text_of(answer) == LETTERS
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="letters", messages=[])
    asyncio.run(talk())


def test_tools_without_a_parser_are_refused(ask):
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(tools=TOOLS)
    assert refusal.value.param == "tools" and "--tool-call-parser" in refusal.value.message


@pytest.fixture(scope="module")
def calling(tmp_path_factory):
    """A client of a model that answers with two calls."""
    folder = tiny.write_script_model(tmp_path_factory.mktemp("calls"), CALL_PIECES)
    with api_server(str(folder), folder / "log", "--model-name", "calls", "--tool-call-parser", "qwen") as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0) as client:
            yield client


def joined_calls(chunks) -> tuple[str, list[dict], str]:
    content, calls, finish = "", [], None
    for chunk in chunks:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        for call in choice.delta.tool_calls or ():
            if call.index == len(calls):
                assert call.id and call.type == "function"
                calls.append({"name": call.function.name, "arguments": ""})
            else:
                assert call.index == len(calls) - 1 and call.function.name is None
            calls[-1]["arguments"] += call.function.arguments
        finish = choice.finish_reason or finish
    return content, calls, finish


def test_f30_tool_calls(calling):
    fields = {"model": "calls", "messages": HELLO, "tools": TOOLS, "temperature": 0}
    answer = calling.chat.completions.create(**fields).choices[0]
    calls = [{"name": call.function.name, "arguments": call.function.arguments} for call in answer.message.tool_calls]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [("f", {}), ("g", {"city": "Oslo"})]
    assert answer.finish_reason == "tool_calls" and answer.message.content.strip() == "Sure."
    content, streamed, finish = joined_calls(calling.chat.completions.create(**fields, stream=True))
    assert (content, streamed, finish) == (answer.message.content, calls, "tool_calls")
    one = calling.chat.completions.create(**fields, parallel_tool_calls=False).choices[0].message.tool_calls
    assert [call.function.name for call in one] == ["f"]
    back = [*HELLO, answer.message, *({"role": "tool", "tool_call_id": call.id, "content": "3"}
                                      for call in answer.message.tool_calls)]
    assert calling.chat.completions.create(**{**fields, "messages": back}).choices[0].message.tool_calls


def test_f30_tool_choice(calling):
    fields = {"model": "calls", "messages": HELLO, "tools": TOOLS, "temperature": 0}
    plain = calling.chat.completions.create(**fields, tool_choice="none").choices[0]
    assert plain.message.tool_calls is None and "<tool_call>" in plain.message.content
    for choice in ("all", {"type": "function", "function": {"name": "h"}}, {"type": "function"}):
        with pytest.raises(openai.BadRequestError) as refusal:
            calling.chat.completions.create(**fields, tool_choice=choice)
        assert refusal.value.param == "tool_choice"


def test_f31_thoughts(tmp_path):
    folder = tiny.write_script_model(tmp_path, ["<th", "ink>\n", "aa", "\n</thi", "nk>", "\n\nbb"])
    with api_server(str(folder), tmp_path / "log", "--model-name", "m", "--reasoning-parser", "default") as server, \
            openai.OpenAI(base_url=server.url + "/v1", api_key="any") as client:
        fields = {"model": "m", "messages": HELLO, "temperature": 0}
        message = client.chat.completions.create(**fields).choices[0].message
        assert (message.reasoning_content.strip(), message.content.strip()) == ("aa", "bb")
        deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**fields, stream=True)]
        assert "".join(delta.content or "" for delta in deltas) == message.content
        assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == message.reasoning_content
        cut = client.chat.completions.create(**fields, max_tokens=3).choices[0]
        assert cut.message.reasoning_content.strip() == "aa" and not cut.message.content
        assert cut.finish_reason == "length"


def test_the_demo_model(demo_model, tmp_path):
    with api_server(demo_model, tmp_path / "log", "--model-name", "smol", "--session-len", "512",
                    "--max-batch-size", "4") as server, \
            openai.OpenAI(base_url=server.url + "/v1", api_key="any") as client:
        question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
        fields = {"model": "smol", "messages": question, "temperature": 0, "max_tokens": 12}
        answer = client.chat.completions.create(**fields, logprobs=True, top_logprobs=5)
        assert "Paris" in text_of(answer)
        content = answer.choices[0].logprobs.content
        text = b"".join(bytes(entry.bytes) for entry in content).decode().removesuffix("<|im_end|>")
        assert text == text_of(answer)
        streamed = "".join(chunk.choices[0].delta.content or ""
                           for chunk in client.chat.completions.create(**fields, stream=True))
        assert streamed == text_of(answer)


def test_f39_one_schema_everywhere(demo_model, tmp_path):
    question = [{"role": "user", "content": "Describe Oslo as JSON."}]
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"enum": ["s", "m", "l"]}},
              "required": ["city", "size"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    config = lmdeploy.GenerationConfig(max_new_tokens=80, response_format=wanted)
    with lmdeploy.pipeline(demo_model) as pipe:
        text = pipe(question, gen_config=config).text
        ids = pipe.preview(question).token_ids
    answer = json.loads(text)
    assert set(answer) == {"city", "size"} and answer["size"] in ("s", "m", "l")
    with api_server(demo_model, tmp_path / "log", "--model-name", "smol", "--session-len", "512") as server, \
            openai.OpenAI(base_url=server.url + "/v1", api_key="any") as client:
        chat = client.chat.completions.create(model="smol", messages=question, temperature=0, max_tokens=80,
                                              response_format=wanted)
        raw = server.post("/generate", input_ids=ids, temperature=0, max_tokens=80, response_format=wanted)
    assert text_of(chat) == text
    assert json.loads(raw.body)["text"] == text
