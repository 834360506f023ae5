"""`lmdeploy serve api_server` with Anthropic's own client."""
import asyncio

import pytest
import tiny
from api_server import api_server

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed: its client is not tested")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HELLO = [{"role": "user", "content": "hi"}]
CALL_PIECES = ["Sure. ", "<tool_call>\n", '{"name": "weather", ', '"arguments": {"city"', ': "Oslo"}}', "\n</tool_call>"]
TOOLS = [{"name": "weather", "description": "Weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--model-name", "letters", "--session-len", "256", "--num-threads", "1",
                    "--api-keys", "secret") as started:
        yield started


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def calling_client(tmp_path_factory):
    folder = tiny.write_script_model(tmp_path_factory.mktemp("calls"), CALL_PIECES)
    with api_server(str(folder), folder / "log", "--model-name", "caller", "--tool-call-parser", "qwen",
                    "--num-threads", "1") as started:
        with anthropic.Anthropic(base_url=started.url, api_key="any", max_retries=0) as opened:
            yield opened


def ask(client, model="letters", **fields):
    return client.messages.create(model=model, **{"messages": HELLO, "max_tokens": 100, "extra_body": {"temperature": 0}, **fields})


def test_message(client):
    answer = ask(client, system="Be brief.")
    assert answer.type == "message" and answer.role == "assistant" and answer.model == "letters"
    assert [block.type for block in answer.content] == ["text"] and answer.content[0].text == LETTERS
    assert answer.stop_reason == "end_turn" and answer.stop_sequence is None
    assert answer.usage.output_tokens == 26 and answer.usage.input_tokens > 10


def test_limits_and_stop_sequences(client):
    short = ask(client, max_tokens=3)
    assert short.content[0].text == "abc" and short.stop_reason == "max_tokens"
    stopped = ask(client, stop_sequences=["x", "de"])
    assert stopped.content[0].text == "abc"
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "de")


def test_stream(client):
    whole = ask(client)
    with client.messages.stream(model="letters", messages=HELLO, max_tokens=100, extra_body={"temperature": 0}) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == LETTERS
    assert final.content[0].text == whole.content[0].text and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == 26


def test_raw_events(client):
    kinds = [event.type for event in ask(client, stream=True, max_tokens=2)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_async_client(server):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, max_tokens=count) for count in range(1, 9)))
    answers = asyncio.run(run())
    assert [answer.content[0].text for answer in answers] == [LETTERS[:count] for count in range(1, 9)]


def test_conversations_in_blocks(client):
    turns = [{"role": "user", "content": [{"type": "text", "text": "hi"}]},
             {"role": "assistant", "content": [{"type": "thinking", "thinking": "so", "signature": ""},
                                               {"type": "text", "text": "hello"}]},
             {"role": "user", "content": [{"type": "text", "text": "more"}]}]
    assert ask(client, messages=turns).content[0].text == LETTERS


def test_count_tokens(client):
    counted = client.messages.count_tokens(model="letters", messages=HELLO, system="Be brief.")
    assert counted.input_tokens == ask(client, system="Be brief.").usage.input_tokens


def test_tools(calling_client):
    answer = ask(calling_client, "caller", tools=TOOLS)
    assert [block.type for block in answer.content] == ["text", "tool_use"] and answer.stop_reason == "tool_use"
    call = answer.content[1]
    assert (call.name, call.input) == ("weather", {"city": "Oslo"}) and call.id
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
    turns = [*HELLO, {"role": "assistant", "content": answer.content}, result]
    assert ask(calling_client, "caller", messages=turns, tools=TOOLS).stop_reason == "tool_use"


def test_streamed_tools(calling_client):
    with calling_client.messages.stream(model="caller", messages=HELLO, max_tokens=100, tools=TOOLS,
                                        extra_body={"temperature": 0}) as stream:
        final = stream.get_final_message()
    assert len(final.content) == 2, final
    assert final.content[1].input == {"city": "Oslo"} and final.stop_reason == "tool_use"


def test_refusals_are_the_clients_own_exceptions(client, server):
    for fields in ({"extra_body": {"temperature": 9}}, {"messages": []}, {"max_tokens": 0},
                   {"messages": [{"role": "user", "content": "x" * 1000}]},
                   {"messages": [{"role": "user", "content": [{"type": "image", "source": {
                       "type": "base64", "media_type": "image/png", "data": "AA=="}}]}]}):
        with pytest.raises(anthropic.BadRequestError) as refusal:
            ask(client, **fields)
        assert refusal.value.body["type"] == "error", fields
        assert refusal.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        ask(client, model="other")
    with anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError):
            ask(stranger)
