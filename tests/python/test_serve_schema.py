"""The server against its own description: schemathesis makes requests from openapi.json and checks what comes back."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from api_server import api_server

MAX_EXAMPLES = 12


@pytest.fixture(scope="module")
def server(alphabet_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(alphabet_path, log, "--model-name", "letters", "--session-len", "64", "--num-threads", "1",
                    "--enable-abort-handling") as started:
        yield started


@pytest.fixture(scope="module")
def description(server):
    return server.request("GET", "/openapi.json").json()


# Fields of LMDeploy's documented requests; what this version does not support is described as such.
DOCUMENTED = {
    "ChatCompletionRequest": """model messages temperature top_p top_k min_p repetition_penalty n max_tokens
        max_completion_tokens min_new_tokens stop stream stream_options logprobs top_logprobs ignore_eos
        skip_special_tokens spaces_between_special_tokens include_stop_str_in_output session_id seed logit_bias
        response_format tools tool_choice parallel_tool_calls reasoning_effort enable_thinking chat_template_kwargs
        do_preprocess return_token_ids media_io_kwargs mm_processor_kwargs repetition_ngram_size
        repetition_ngram_threshold return_logprob input_ids image_data return_routed_experts presence_penalty
        frequency_penalty user functions function_call store metadata service_tier modalities""",
    "CompletionRequest": """model prompt max_tokens max_completion_tokens temperature top_p top_k repetition_penalty
        min_p seed stream_options spaces_between_special_tokens n stop stream logprobs ignore_eos skip_special_tokens
        session_id return_token_ids suffix echo presence_penalty frequency_penalty user best_of""",
    "EncodeRequest": "input do_preprocess add_bos",
    "GenerateReqInput": """prompt input_ids image_data max_tokens temperature top_p top_k min_p repetition_penalty stop
        stop_token_ids stream ignore_eos skip_special_tokens spaces_between_special_tokens include_stop_str_in_output
        return_logprob return_routed_experts session_id""",
    "GenerateRequest": """prompt image_url session_id interactive_mode stream stop request_output_len top_p top_k
        temperature repetition_penalty ignore_eos skip_special_tokens cancel adapter_name""",
    "AbortRequest": "session_id abort_all",
    "PoolingRequest": "model input",
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_field_is_typed(description, name):
    properties = description["components"]["schemas"][name]["properties"]
    untyped = [field for field in DOCUMENTED[name].split()
               if not {"type", "anyOf", "$ref"} & set(properties.get(field, {})) and field != "image_data"]
    assert not untyped and all("description" in field for field in properties.values())


def test_references_and_schemas_are_sound(description):
    schemas = description["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]*)"', json.dumps(description)):
        assert name in schemas
    jsonschema = pytest.importorskip("jsonschema")
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_events_are_as_described(server, description):
    """What a stream holds is beyond OpenAPI; its pieces have the form of OpenAI's chunks."""
    for path, fields, kind in (("/v1/chat/completions", {"messages": "a"}, "chat.completion.chunk"),
                               ("/v1/completions", {"prompt": "a"}, "text_completion")):
        for event in server.events(path, logprobs=1 if "prompt" in fields else True, **fields)[:-1]:
            chunk = json.loads(event)
            assert chunk["object"] == kind and set(chunk) == {"id", "object", "created", "model", "choices"}
            for choice in chunk["choices"]:
                assert {"index", "logprobs", "finish_reason"} < set(choice)


def test_schemathesis_finds_nothing(server, tmp_path):
    """No status of 5xx, no answer outside its schema, nothing malformed taken. That well-formed requests may be refused
    is left out: which token ids exist, say, no schema says."""
    pytest.importorskip("schemathesis")
    program = pathlib.Path(sys.executable).with_name("schemathesis")
    run = subprocess.run(
        [program, "run", server.url + "/openapi.json", "--checks", "all", "--exclude-checks",
         "positive_data_acceptance", "--phases", "coverage,fuzzing", "--max-examples", str(MAX_EXAMPLES), "--no-shrink",
         "--request-timeout", "30", "--seed", "1", "--continue-on-failure", "--exclude-path-regex",
         "^/(sleep|wakeup|update_weights|distserve/.*)$"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_COLOR": "1"})
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert server.health() == 200
    server.wait_until(lambda values: values["num_requests_running"] == 0 and values["num_used_blocks"] == 0)
