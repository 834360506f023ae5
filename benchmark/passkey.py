"""Passkey retrieval: a number hidden at some depth of a long irrelevant text must be found again.

    python benchmark/passkey.py MODEL --session-len 160000 --rope-scaling-factor 2.5

Exits with 1 when a number was not found. make_passkey_model.py writes a tiny model that always finds it.
"""
from __future__ import annotations

import argparse
import random
import resource
import sys
import time

import lmdeploy

TASK = ("There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
        "I will quiz you about the important information there.")
FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
QUESTION = "What is the pass key? The pass key is"


def hidden_line(key: int) -> str:
    return f"The pass key is {key}. Remember it. {key} is the pass key."


def make_prompt(tokenizer: lmdeploy.Tokenizer, num_tokens: int, depth: float, key: int) -> str:
    """At most ``num_tokens`` tokens, the key after that share of the irrelevant lines."""
    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_bos=False)) + 1  # a space may be a token of its own

    room = num_tokens - count(TASK) - count(hidden_line(key)) - count(QUESTION) - 1
    lines = max(0, room // count(FILLER))
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
    parser.add_argument("--most-key", type=int, default=50000, help="the largest number")
    parser.add_argument("--rope-scaling-factor", type=float, default=0.0, help="1 or more: dynamic NTK")
    parser.add_argument("--cache-max-entry-count", type=float, default=0.7)
    parser.add_argument("--most-mib", type=int, default=0, help="fail when the process gets larger than this")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.depths = [float(depth) for depth in args.depths.split(",")]
    if not all(0 <= depth <= 1 for depth in args.depths):
        parser.error(f"argument --depths: {args.depths}; expected shares from 0 to 1")
    return args


def main() -> int:
    args = parse_args()
    rng = random.Random(args.seed)
    config = lmdeploy.TurbomindEngineConfig(session_len=args.session_len, rope_scaling_factor=args.rope_scaling_factor,
                                            cache_max_entry_count=args.cache_max_entry_count, max_batch_size=1)
    gen_config = lmdeploy.GenerationConfig(max_new_tokens=16)
    missed = 0
    with lmdeploy.pipeline(args.model, config) as pipe:
        if pipe.session_len < args.session_len:
            sys.exit(f"the KV cache holds {pipe.session_len} tokens only: raise --cache-max-entry-count")
        for depth in args.depths:
            for _ in range(args.rounds):
                key = rng.randint(1, args.most_key)
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
