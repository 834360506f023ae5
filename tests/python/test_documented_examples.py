"""LMDeploy's documented examples of its server (docs/en/serving/restful_api.md, docs/en/llm/api_server.md, and
docs/en/serving/qos.md of 0.4 to 0.6; Apache-2.0), as they stand there but for the server's address."""
import contextlib
import io
import json
import pathlib
import subprocess

import pytest
import tiny
from api_server import api_server

import lmdeploy

CHAT_CLIENT = """
from lmdeploy.serve.openai.api_client import APIClient
api_client = APIClient('http://{server_ip}:{server_port}')
model_name = api_client.available_models[0]
messages = [{"role": "user", "content": "Say this is a test!"}]
for item in api_client.chat_completions_v1(model=model_name, messages=messages):
    print(item)
"""
COMPLETIONS_CLIENT = """
from lmdeploy.serve.openai.api_client import APIClient
api_client = APIClient('http://{server_ip}:{server_port}')
model_name = api_client.available_models[0]
for item in api_client.completions_v1(model=model_name, prompt='hi'):
    print(item)
"""
INTERACTIVE_CLIENT = """
from lmdeploy.serve.openai.api_client import APIClient
api_client = APIClient('http://{server_ip}:{server_port}')
for item in api_client.chat_interactive_v1(prompt='hi'):
    print(item)
"""
CONVERSATION_CLIENT = """
from lmdeploy.serve.openai.api_client import APIClient
api_client = APIClient(f'http://{server_ip}:{server_port}')
messages = [
    "hi, what's your name?",
    "who developed you?",
    "Tell me more about your developers",
    "Summarize the information we've talked so far"
]
for message in messages:
    for item in api_client.chat_interactive_v1(prompt=message,
                                               session_id=1,
                                               interactive_mode=True,
                                               stream=False):
        print(item)
"""
OPENAI_CLIENT = """
from openai import OpenAI
client = OpenAI(
    api_key='YOUR_API_KEY',
    base_url="http://0.0.0.0:23333/v1"
)
model_name = client.models.list().data[0].id
response = client.chat.completions.create(
  model=model_name,
  messages=[
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": " provide three suggestions about time management"},
  ],
    temperature=0.8,
    top_p=0.8
)
print(response)
"""
ASYNC_OPENAI_CLIENT = """
import asyncio
from openai import AsyncOpenAI

async def main():
    client = AsyncOpenAI(api_key='YOUR_API_KEY',
                         base_url='http://0.0.0.0:23333/v1')
    model_cards = await client.models.list()._get_page()
    response = await client.chat.completions.create(
        model=model_cards.data[0].id,
        messages=[
            {
                'role': 'system',
                'content': 'You are a helpful assistant.'
            },
            {
                'role': 'user',
                'content': ' provide three suggestions about time management'
            },
        ],
        temperature=0.8,
        top_p=0.8)
    print(response)

asyncio.run(main())
"""
CURLS = {
    "models": "curl http://{server_ip}:{server_port}/v1/models",
    "interactive": r"""curl http://{server_ip}:{server_port}/v1/chat/interactive \
  -H "Content-Type: application/json" \
  -d '{
    "prompt": "Hello! How are you?",
    "session_id": 1,
    "interactive_mode": true
  }'""",
    "chat": r"""curl http://{server_ip}:{server_port}/v1/chat/completions \
  -H "Content-Type: application/json" \
  -d '{
    "model": "internlm-chat-7b",
    "messages": [{"role": "user", "content": "Hello! How are you?"}]
  }'""",
    "completions": r"""curl http://{server_ip}:{server_port}/v1/completions \
  -H 'Content-Type: application/json' \
  -d '{
  "model": "llama",
  "prompt": "two steps to build a house:"
}'""",
    "interactive_qos": r"""curl -X POST http://localhost/v1/chat/interactive_qos \
  -H "Content-Type: application/json" \
  -d '{
  "prompt": "Hello,Hello",
  "session_id": -1,
  "interactive_mode": false,
  "stream": false,
  "stop": false,
  "request_output_len": 512,
  "top_p": 0.8,
  "top_k": 40,
  "temperature": 0.8,
  "repetition_penalty": 1,
  "ignore_eos": false,
  "user_id": "user_id0"
}'""",
    "chat_qos": r"""curl -X POST http://localhost/v1/chat/completions_qos \
  -H "Content-Type: application/json" \
  -d '{
  "model": "internlm-chat-7b",
  "messages": "Hello,Hello",
  "temperature": 0.7,
  "top_p": 1,
  "n": 1,
  "max_tokens": 512,
  "stop": false,
  "stream": false,
  "presence_penalty": 0,
  "frequency_penalty": 0,
  "repetition_penalty": 1,
  "session_id": -1,
  "ignore_eos": false,
  "user_id": "user_id0"
}'""",
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = tiny.write_alphabet_model(tmp_path_factory.mktemp("alphabet"), scale=4)
    quotas = pathlib.Path(lmdeploy.__file__).parent / "serve" / "qos_engine" / "qos_config.json.template"
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(str(model), log, "--model-name", "internlm-chat-7b,llama", "--num-threads", "1",
                    "--qos_config_path", str(quotas)) as started:
        yield started


def run(example: str, server) -> str:
    names = {"server_ip": "127.0.0.1", "server_port": server.port}
    text = (example.replace("0.0.0.0:23333", f"127.0.0.1:{server.port}")
            if "f'http" in example else example.replace("{server_ip}", "127.0.0.1")
            .replace("{server_port}", str(server.port)).replace("0.0.0.0:23333", f"127.0.0.1:{server.port}"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "example", "exec"), names)
    return printed.getvalue()


def test_api_client(server):
    assert f"'content': '{LETTERS}'" in run(CHAT_CLIENT, server)
    assert "'text': 'jklm" in run(COMPLETIONS_CLIENT, server)
    assert f"'text': '{LETTERS}'" in run(INTERACTIVE_CLIENT, server)
    assert run(CONVERSATION_CLIENT, server).count(LETTERS) == 4


def test_openai_client(server):
    pytest.importorskip("openai")
    assert f"content='{LETTERS}'" in run(OPENAI_CLIENT, server)
    assert f"content='{LETTERS}'" in run(ASYNC_OPENAI_CLIENT, server)


@pytest.mark.parametrize("name", CURLS)
def test_curl(name, server):
    command = (CURLS[name].replace("{server_ip}:{server_port}", f"127.0.0.1:{server.port}")
               .replace("localhost", f"127.0.0.1:{server.port}").replace("curl ", "curl --silent --fail ", 1))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    if name == "models":
        assert [card["id"] for card in answer["data"]] == ["internlm-chat-7b", "llama"]
    elif name.startswith("interactive"):
        assert answer["text"] == LETTERS and answer["finish_reason"] == "stop"
    elif name.startswith("chat_qos"):
        assert answer["choices"][0]["message"]["content"] == "pqrstuvwxyz"  # a text is not a conversation
    elif name.startswith("chat"):
        assert answer["choices"][0]["message"]["content"] == LETTERS
    else:
        assert answer["choices"][0]["finish_reason"] in ("stop", "length")
