#!/usr/bin/env python3
"""Structured output here and in the xgrammar and llguidance packages, on the same schemas, vocabulary and answers.

    .venv/bin/python tools/grammar_bench.py TOKENIZER_JSON [--answers 3]
    .venv/bin/python tools/grammar_bench.py --model MODEL [--rounds 7]

TOKENIZER_JSON is a tokenizer.json (or its folder). The other packages are compared when they are installed
(`pip install xgrammar llguidance`); nothing depends on them. One thread, processor time. For each engine: the time to
compile a schema of tests/data/grammar, the time of one mask (the first document of a schema meets states that nobody
has met), and on which valid documents it agrees. With MODEL: what a grammar costs eight answers that are decoded
together.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "python"))
import grammar_tools as tools  # noqa: E402

import lmdeploy._core as core  # noqa: E402


class Ours:
    name = "lmdeploy"

    def __init__(self, path: str, tokenizer: core.Tokenizer) -> None:
        self.vocabulary = core.Vocabulary.of(tokenizer)
        self.mask = np.zeros((len(self.vocabulary) + 31) // 32, np.uint32)

    def compile(self, schema: Any) -> Any:
        return core.Grammar.compile(tools.schema_format(schema), self.vocabulary)

    def matcher(self, grammar: Any) -> Any:
        return grammar.matcher()

    def fill(self, matcher: Any) -> None:
        matcher.fill_mask(self.mask)

    def accept(self, matcher: Any, token: int) -> bool:
        return matcher.accept(token)

    def whole(self, matcher: Any) -> bool:
        return matcher.can_stop()


class XGrammar:
    name = "xgrammar"

    def __init__(self, path: str, tokenizer: core.Tokenizer) -> None:
        import xgrammar
        self.x = xgrammar
        vocabulary = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        ends = list(tokenizer.end_ids)
        self.end = ends[0]
        self.info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=ends)
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, self.info.vocab_size)

    def compile(self, schema: Any) -> Any:
        return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)

    def matcher(self, grammar: Any) -> Any:
        return self.x.GrammarMatcher(grammar)

    def fill(self, matcher: Any) -> None:
        matcher.fill_next_token_bitmask(self.mask)

    def accept(self, matcher: Any, token: int) -> bool:
        return matcher.accept_token(token)

    def whole(self, matcher: Any) -> bool:
        return matcher.accept_token(self.end)


class LlGuidance:
    name = "llguidance"

    def __init__(self, path: str, tokenizer: core.Tokenizer) -> None:
        import llguidance
        import llguidance.hf
        import llguidance.numpy
        import tokenizers
        self.ll = llguidance
        self.numpy = llguidance.numpy
        hugging = tokenizers.Tokenizer.from_file(path)
        self.end = next(iter(tokenizer.end_ids))
        self.tokenizer = llguidance.LLTokenizer(hugging.to_str(), eos_token=self.end)
        self.mask = self.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema: Any) -> Any:
        text = self.ll.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": True})
        matcher = self.ll.LLMatcher(self.tokenizer, text)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def matcher(self, grammar: Any) -> Any:
        return grammar.deep_copy()

    def fill(self, matcher: Any) -> None:
        self.numpy.fill_next_token_bitmask(matcher, self.mask)

    def accept(self, matcher: Any, token: int) -> bool:
        return matcher.consume_token(token)

    def whole(self, matcher: Any) -> bool:
        return matcher.is_accepting()


def engines(path: str, tokenizer: core.Tokenizer) -> list[Any]:
    found = []
    for kind in (Ours, XGrammar, LlGuidance):
        try:
            begin = time.perf_counter()
            found.append(kind(path, tokenizer))
            print(f"{kind.name}: vocabulary in {(time.perf_counter() - begin) * 1e3:.0f} ms")
        except ImportError as error:
            print(f"{kind.name} is left out: {error}")
    return found


def documents(schema: Any, tokenizer: core.Tokenizer, count: int) -> list[list[int]]:
    return [tokenizer.encode(json.dumps(value, ensure_ascii=False), add_special_tokens=False)
            for value in tools.documents(schema, count)]


def run(engine: Any, schema: Any, answers: list[list[int]], times: dict[str, list[float]]) -> list[bool] | None:
    """Whether each answer is accepted; None: the schema is refused."""
    begin = time.thread_time()
    try:
        grammar = engine.compile(schema)
    except Exception:  # each package has its own
        return None
    times["compile"].append(time.thread_time() - begin)
    accepted = []
    for answer in answers:
        matcher = engine.matcher(grammar)
        good = True
        for token in answer:
            begin = time.thread_time()
            engine.fill(matcher)
            times["mask"].append(time.thread_time() - begin)
            begin = time.thread_time()
            good = engine.accept(matcher, token)
            times["accept"].append(time.thread_time() - begin)
            if not good:
                break
        accepted.append(good and engine.whole(matcher))
    return accepted


def decode_cost(model: str, rounds: int) -> None:
    """Eight answers of 96 tokens, with and without a grammar, in turns."""
    import lmdeploy
    properties = {"name": {"type": "string", "maxLength": 40},
                  "size": {"type": "integer", "minimum": 0, "maximum": 10**6}}
    schema = {"type": "array", "minItems": 200, "items": {"type": "object", "required": ["name", "size"],
                                                          "additionalProperties": False, "properties": properties}}
    things = "rivers towns fish birds stars cars books ships".split()
    prompts = [f"A JSON list of {thing} with name and size:" for thing in things]
    free = lmdeploy.GenerationConfig(max_new_tokens=96, ignore_eos=True)
    bound = lmdeploy.GenerationConfig(max_new_tokens=96, ignore_eos=True, response_format=tools.schema_format(schema))
    seconds: dict[str, list[float]] = {"free": [], "bound": []}
    with lmdeploy.pipeline(model) as pipe:
        for _ in range(rounds):
            for name, config in (("free", free), ("bound", bound)):
                begin = time.perf_counter()
                answers = pipe(prompts, gen_config=config, do_preprocess=False)
                seconds[name].append(time.perf_counter() - begin)
                assert all(answer.generate_token_len == 96 for answer in answers)
    for name, values in seconds.items():
        rates = 8 * 96 / np.array(values)
        print(f"{name}: {np.median(rates):.1f} tokens/s (median of {rounds}), best {rates.max():.1f}")
    ratios = np.array(seconds["free"]) / np.array(seconds["bound"])
    print(f"bound / free: {np.median(ratios):.3f} (median of the pairs)")


def summary(values: list[float]) -> str:
    micro = np.array(values) * 1e6
    return (f"median {np.median(micro):8.1f} µs, mean {micro.mean():8.1f}, p99 {np.percentile(micro, 99):9.1f}, "
            f"max {micro.max():9.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer", nargs="?")
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if args.model:
        decode_cost(args.model, args.rounds)
        return
    if not args.tokenizer:
        parser.error("a tokenizer.json or --model is needed")
    path = pathlib.Path(args.tokenizer)
    path = path / "tokenizer.json" if path.is_dir() else path
    tokenizer = core.Tokenizer.load(path.parent)
    print(f"{tokenizer.vocab_size} tokens")
    work = [(name, schema, documents(schema, tokenizer, args.answers)) for name, schema in tools.schemas().items()]
    for engine in engines(str(path), tokenizer):
        times: dict[str, list[float]] = {"compile": [], "mask": [], "accept": []}
        results = [run(engine, schema, answers, times) for _, schema, answers in work]
        refused = [name for (name, _, _), result in zip(work, results, strict=True) if result is None]
        wrong = [name for (name, _, _), result in zip(work, results, strict=True) if result and not all(result)]
        print(f"\n{engine.name}: {len(work)} schemas, {len(refused)} refused, "
              f"{len(wrong)} that refuse a valid document")
        for what, values in times.items():
            print(f"  {what:8s} {summary(values)}  ({len(values)})")
        print(f"  refused: {' '.join(refused)}\n  wrong:   {' '.join(wrong)}")


if __name__ == "__main__":
    main()
