"""Passkey retrieval: a number hidden at some depth of a long irrelevant text must be found again.

    python benchmark/passkey.py MODEL --session-len 160000 --rope-scaling-factor 2.5

Exits with 1 when a number was not found, with 2 when nothing could be asked. make_passkey_model.py writes a tiny model that always finds it.
"""
from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from typing import NoReturn

import lmdeploy

TASK = ("There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
        "I will quiz you about the important information there.")
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
QUESTION = "What is the pass key? The pass key is"
DEFAULT_MOST_KEY = 50000


def hidden_line(key: int) -> str:
    return f"The pass key is {key}. Remember it. {key} is the pass key."


def count_tokens(tokenizer: lmdeploy.Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_bos=False)) + 1  # a space may be a token of its own


def least_tokens(tokenizer: lmdeploy.Tokenizer, key: int) -> int:
    """Of a prompt without irrelevant lines."""
    return sum(count_tokens(tokenizer, text) for text in (TASK, hidden_line(key), QUESTION)) + 1


def largest_key(tokenizer: lmdeploy.Tokenizer, most: int) -> int:
    """The largest number up to ``most`` so that the vocabulary can write it and all below."""
    for key in range(1, most + 1):
        if tokenizer.decode(tokenizer.encode(str(key), add_bos=False)).strip() != str(key):
            return key - 1
    return most


def make_prompt(tokenizer: lmdeploy.Tokenizer, num_tokens: int, depth: float, key: int) -> str:
    """At most ``num_tokens`` tokens, the key after that share of the irrelevant lines."""
    lines = (num_tokens - least_tokens(tokenizer, key)) // count_tokens(tokenizer, FILLER)
    before = round(depth * lines)
    return " ".join([TASK, *[FILLER] * before, hidden_line(key), *[FILLER] * (lines - before), QUESTION])


def resident_peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--session-len", type=int, default=4096, help="tokens of prompt and answer")
    parser.add_argument("--depths", default="0,0.25,0.5,0.75,1", help="shares of the text before the number")
    parser.add_argument("--rounds", type=int, default=1, help="numbers for each depth")
    parser.add_argument("--most-key", type=int, help="the largest number (default: 50000, or what the vocabulary has)")
    parser.add_argument("--rope-scaling-factor", type=float, default=0.0, help="1 or more: dynamic NTK")
    parser.add_argument("--cache-max-entry-count", type=float, default=0.7)
    parser.add_argument("--most-mib", type=int, default=0, help="fail when the process gets larger than this")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.depths = [float(depth) for depth in args.depths.split(",")]
    if args.rounds < 1 or (args.most_key is not None and args.most_key < 1):
        parser.error(f"--rounds {args.rounds}, --most-key {args.most_key}: expected at least 1")
    if not all(0 <= depth <= 1 for depth in args.depths):
        parser.error(f"argument --depths: {args.depths}; expected shares from 0 to 1")
    return args


def fail(reason: object) -> NoReturn:
    print(f"passkey.py: error: {reason}", file=sys.stderr)
    sys.exit(2)


def open_pipeline(args: argparse.Namespace) -> lmdeploy.Pipeline:
    try:
        config = lmdeploy.TurbomindEngineConfig(
            session_len=args.session_len, rope_scaling_factor=args.rope_scaling_factor,
            cache_max_entry_count=args.cache_max_entry_count, max_batch_size=1)
        return lmdeploy.pipeline(args.model, config)
    except lmdeploy.LmdeployError as error:
        fail(error)


def check_room(pipe: lmdeploy.Pipeline, args: argparse.Namespace, num_new_tokens: int) -> int:
    """The largest number to hide. Ends the program when the session or the vocabulary is too small."""
    most = args.most_key or DEFAULT_MOST_KEY
    spelled = largest_key(pipe.tokenizer, most)
    if spelled < (args.most_key or 1):
        fail(f"--most-key {most}: the vocabulary has no spelling of {spelled + 1}; expected at most {spelled}")
    least = least_tokens(pipe.tokenizer, spelled) + num_new_tokens
    if args.session_len < least:
        fail(f"--session-len {args.session_len} is too small: question and answer alone take {least} tokens")
    if pipe.session_len < args.session_len:
        fail(f"the KV cache holds {pipe.session_len} tokens only: raise --cache-max-entry-count")
    return spelled


def main() -> int:
    args = parse_args()
    rng = random.Random(args.seed)
    gen_config = lmdeploy.GenerationConfig(max_new_tokens=16)
    missed = 0
    with open_pipeline(args) as pipe:
        most_key = check_room(pipe, args, gen_config.max_new_tokens)
        for depth in args.depths:
            for _ in range(args.rounds):
                key = rng.randint(1, most_key)
                prompt = make_prompt(pipe.tokenizer, args.session_len - gen_config.max_new_tokens, depth, key)
                start = time.perf_counter()
                answer = pipe(prompt, gen_config, do_preprocess=False)
                found = answer.text.split()[:1] == [str(key)] or answer.text.strip().rstrip(".").startswith(str(key))
                missed += not found
                print(f"{answer.input_token_len} tokens, depth {depth:.2f}: key {key}, answer {answer.text.strip()!r}, "
                      f"{'found' if found else 'NOT FOUND'}, {time.perf_counter() - start:.1f} s", flush=True)
    peak = resident_peak_mib()
    print(f"{missed} of {len(args.depths) * args.rounds} not found; the process took {peak} MiB at most")
    return 1 if missed or 0 < args.most_mib < peak else 0


if __name__ == "__main__":
    sys.exit(main())
