"""Structured output against the jsonschema library and re: what is drawn is valid, what is valid is accepted."""
import json
import random
import re

import grammar_tools as tools
import jsonschema
import pytest
from json_documents import matching

import lmdeploy
import lmdeploy._core as core
from lmdeploy import GenerationConfig

SCHEMAS = tools.schemas()
# What a pattern ends with that no random text happens to.
ENDINGS = {"pattern_6": b'needle"', "pattern_8": b'end"', "pattern_12": b'@a"', "pattern_15": b'abb"',
           "pattern_17": b'\\""', "pattern_two": b'x"', "two_patterns": b'_s":""}'}
SAMPLES = 6
DOCUMENTS = 12


@pytest.fixture(scope="module")
def small():
    tokens = tools.small_vocabulary()
    return core.Vocabulary.of_bytes(tokens), tokens


def test_there_are_enough_schemas():
    assert len(SCHEMAS) >= 200


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_drawn_at_random_is_valid(name, small):
    vocabulary, tokens = small
    grammar = core.Grammar.compile(tools.schema_format(SCHEMAS[name]), vocabulary)
    assert grammar.warnings == []
    check = tools.validator(SCHEMAS[name])
    for seed in range(SAMPLES):
        answer = tools.Sampler(tokens, seed, ending=ENDINGS.get(name, b"")).answer(grammar.matcher()).decode()
        check.validate(json.loads(answer))


def spellings(value):
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    indented = json.dumps(value, ensure_ascii=False, indent=2)
    if "\n" + " " * 21 not in indented:
        yield indented


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_valid_is_accepted(name, small):
    grammar = core.Grammar.compile(tools.schema_format(SCHEMAS[name]), small[0])
    found = 0
    for value in tools.documents(SCHEMAS[name], DOCUMENTS):
        found += 1
        for text in spellings(value):
            matcher = grammar.matcher()
            assert matcher.accept_bytes(text.encode()) and matcher.can_stop(), text
    assert found > 0


@pytest.mark.skipif(not tools.tokenizer_names(), reason="the shared tokenizers are not there")
@pytest.mark.parametrize("tokenizer_name", tools.tokenizer_names())
def test_every_tokenizer_spells_what_is_valid(tokenizer_name, tmp_path):
    tokenizer = tools.load_tokenizer(tokenizer_name, tmp_path)
    try:
        vocabulary = core.Vocabulary.of(tokenizer)
    except lmdeploy.errors.UnsupportedError as error:
        pytest.skip(str(error))
    alone = {tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
    for name in list(SCHEMAS)[::4]:
        grammar = core.Grammar.compile(tools.schema_format(SCHEMAS[name]), vocabulary)
        for value in tools.documents(SCHEMAS[name], 2):
            for text in spellings(value):
                if any(bytes([byte]) not in alone for byte in text.encode()):
                    continue  # such characters never come: docs/structured_output.md
                ids = tokenizer.encode(text, add_special_tokens=False)
                if tokenizer.decode(ids) != text:
                    continue  # the tokenizer changes the text
                matcher = grammar.matcher()
                refused = next((i for i, token in enumerate(ids) if not matcher.accept(token)), None)
                assert refused is None, (name, text, [tokenizer.token_bytes(i) for i in ids], refused)
                assert matcher.can_stop()


PATTERNS = ["a*b+c?", "(ab|cd)*e", "[a-c]{2,4}", "[^ab]+", "a.c", "\\d{2}-\\w+", "(?:a|b(?:c|d)*)+", "\\s?x\\S*",
            "x{0,3}y{2}", "(a|ab)(c|bcd)",
            "[\\w.-]+@[a-c]+", "a|b|", "(a?){3}a{3}", "\\x61\\u0062\\.", "[]a-]+", "a{,2}b", "(?P<n>a)b", "^(a|b$)+"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_expressions_mean_what_they_mean_in_python(pattern, small):
    grammar = core.Grammar.compile({"type": "regex_schema", "regex_schema": pattern}, small[0])
    anywhere = core.Grammar.compile(tools.schema_format({"type": "string", "pattern": pattern}), small[0])
    whole, search = re.compile(f"(?:{pattern})\\Z", re.ASCII), re.compile(pattern, re.ASCII)
    rng = random.Random(1)
    texts = ["".join(rng.choice("abcdexy12 .@-_\u00e9\n") for _ in range(rng.randint(0, 7))) for _ in range(1500)]
    texts += ["".join(rng.choice("ab") for _ in range(rng.randint(0, 8))) for _ in range(300)]
    texts += [matching(pattern, rng) for _ in range(300)]
    for text in texts:
        matcher = grammar.matcher()
        accepted = matcher.accept_bytes(text.encode()) and matcher.can_stop()
        assert accepted == bool(whole.match(text)), text
        if not text.endswith("\n"):  # before which Python's $ matches too
            matcher = anywhere.matcher()
            accepted = matcher.accept_bytes(json.dumps(text, ensure_ascii=False).encode()) and matcher.can_stop()
            assert accepted == bool(search.search(text)), text


def test_random_answers_of_expressions_match(small):
    vocabulary, tokens = small
    for pattern in PATTERNS:
        grammar = core.Grammar.compile({"type": "regex_schema", "regex_schema": pattern}, vocabulary)
        for seed in range(5):
            text = tools.Sampler(tokens, seed, patience=15).answer(grammar.matcher()).decode()
            assert re.fullmatch(pattern, text, re.ASCII), (pattern, text)


def answers(pipe, response_format, **more):
    config = GenerationConfig(response_format=response_format, **{"max_new_tokens": 200, **more})
    return pipe(["one", "two"], gen_config=config, do_preprocess=False)


RECORD = {"type": "object", "additionalProperties": False, "required": ["a", "b"],
          "properties": {"a": {"enum": ["first", "second"]}, "b": {"type": "string", "maxLength": 5}}}


def test_the_pipeline_keeps_to_a_schema(endless):
    for response in answers(endless, tools.schema_format(RECORD)):
        assert response.finish_reason == "stop"
        jsonschema.validate(json.loads(response.text), RECORD)
    sampled = {"do_sample": True, "temperature": 2.0, "top_k": 0, "random_seed": 5, "n": 3}
    for response in answers(endless, tools.schema_format(RECORD), **sampled):
        for choice in response.choices:
            jsonschema.validate(json.loads(choice.text), RECORD)


def test_f32_a_model_that_loves_white_space(endless):
    for blank in (" ", "\n"):
        config = {"logit_bias": {ord(blank): 90.0}}
        for response in answers(endless, tools.schema_format(RECORD), **config):
            assert response.finish_reason == "stop"
            jsonschema.validate(json.loads(response.text), RECORD)
        compact, _ = answers(endless, tools.schema_format(RECORD, compact=True), **config)
        assert not re.search(r"\s", compact.text.replace(json.loads(compact.text)["b"], ""))


def test_the_other_kinds(endless):
    for response in answers(endless, {"type": "choice", "choice": ["yes", "no"]}):
        assert response.text in ("yes", "no") and response.finish_reason == "stop"
    pattern = "[0-9]{3}-[a-f]+!"
    for response in answers(endless, {"type": "regex_schema", "regex_schema": pattern}, logit_bias={ord("!"): 50.0}):
        assert re.fullmatch(pattern, response.text)
    for response in answers(endless, {"type": "json_object"}, logit_bias={ord("}"): 50.0}):
        assert json.loads(response.text) == {}
    free, _ = answers(endless, None, max_new_tokens=3)
    text, _ = answers(endless, {"type": "text"}, max_new_tokens=3)
    assert free.text == text.text


def test_a_batch_of_different_formats(endless):
    choice = {"type": "choice", "choice": ["alpha", "beta"]}
    formats = [tools.schema_format(RECORD), None, choice, {"type": "json_object"}]
    configs = [GenerationConfig(response_format=one, max_new_tokens=200, logit_bias={ord("}"): 20.0} if one else None)
               for one in formats]
    together = endless(["x"] * 4, gen_config=configs, do_preprocess=False)
    alone = [endless("x", gen_config=config, do_preprocess=False) for config in configs]
    assert [response.text for response in together] == [response.text for response in alone]
    jsonschema.validate(json.loads(together[0].text), RECORD)


@pytest.mark.parametrize(("response_format", "words"), [
    ({"type": "json_shema"}, ["gen_config.response_format.type", "json_shema", "json_schema"]),
    ({"type": "json_schema"}, ["gen_config.response_format.json_schema"]),
    ({"type": "json_schema", "json_schema": None}, ["gen_config.response_format.json_schema", "null"]),
    ({"type": "choice", "choice": []}, ["gen_config.response_format.choice"]),
])
def test_malformed_formats_are_refused_at_once(response_format, words):
    with pytest.raises(ValueError) as caught:
        GenerationConfig(response_format=response_format)
    for word in words:
        assert word in str(caught.value)


def test_f37_a_schema_that_cannot_be_kept(endless):
    unique = {"type": "object", "properties": {"a": {"uniqueItems": True}}}
    for schema, words in (({"type": "string", "pattern": "^ab\\!("}, ["#/pattern", "column"]),
                          (unique, ["#/properties/a/uniqueItems"]),
                          ({"type": "integer", "minimum": 3, "maximum": 1}, ["contradict"])):
        with pytest.raises(ValueError) as caught:
            answers(endless, tools.schema_format(schema))
        for word in ["gen_config.response_format.json_schema.schema", *words]:
            assert word in str(caught.value)


@pytest.mark.parametrize(("schema", "words"), [
    ({"const": float("nan")}, ["#/const", "NaN"]),
    ({"enum": [1, float("inf")]}, ["#/enum/1", "infinity"]),
    ({"type": "number", "minimum": float("nan")}, ["#/minimum", "NaN"]),
    ({"type": "number", "maximum": float("-inf")}, ["#/maximum", "-infinity"]),
    ({"type": "number", "multipleOf": float("nan")}, ["#/multipleOf", "NaN"]),
    ({"type": "integer", "minimum": 10**45}, ["bounds", "40 digits"]),
    ({"type": "integer", "minimum": 10**30 + 1}, [".minimum", "64 bits", "10**30"]),
    ({"type": "integer", "minimum": 10**400}, [".minimum", "64 bits"]),
])
def test_numbers_that_a_schema_cannot_hold(small, schema, words):
    with pytest.raises(ValueError) as caught:
        core.Grammar.compile(tools.schema_format(schema), small[0])
    for word in words:
        assert word in str(caught.value)


def test_wide_integers_are_exact(small):
    schema = {"type": "integer", "minimum": 10**30, "maximum": 10**30}
    matcher = core.Grammar.compile(tools.schema_format(schema), small[0]).matcher()
    assert matcher.accept_bytes(str(10**30).encode()) and matcher.is_complete()


def test_a_schema_inside_itself_is_one_short_error():
    schema = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(ValueError, match=r"^gen_config.response_format: nested deeper than 256 levels"):
        GenerationConfig(response_format=tools.schema_format(schema))
