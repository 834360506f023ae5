#!/usr/bin/env python3
"""Keeps a pipeline busy with streams, batches and aborted requests and fails when its resident size grows.

    soak.py MODEL --seconds 600 --seed 1
"""
import argparse
import random
import sys
import threading
import time

from lmdeploy import GenerationConfig, TurbomindEngineConfig, pipeline

GROWTH_LIMIT_MB = 50  # after warm-up; field case F56


def resident_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def one_request(pipe, rng: random.Random) -> None:
    prompt = " ".join(rng.choice("red green blue one two three".split()) for _ in range(rng.randint(1, 60)))
    config = GenerationConfig(max_new_tokens=rng.randint(1, 40), do_sample=rng.random() < 0.5,
                              random_seed=rng.randrange(2**32), logprobs=3 if rng.random() < 0.2 else None)
    if rng.random() < 0.5:
        pipe(prompt, gen_config=config)
        return
    stop_after = rng.randint(1, 5) if rng.random() < 0.2 else 1 << 30
    for i, _ in enumerate(pipe.stream_infer(prompt, gen_config=config)):
        if i >= stop_after:
            break  # dropping the iterator cancels the request


def work(pipe, seed: int, until: float, counter: list) -> None:
    rng = random.Random(seed)
    while time.monotonic() < until:
        one_request(pipe, rng)
        counter[0] += 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with pipeline(args.model, backend_config=TurbomindEngineConfig(enable_prefix_caching=True)) as pipe:
        def phase(seconds: float, seed: int) -> int:
            counter = [0]
            until = time.monotonic() + seconds
            threads = [threading.Thread(target=work, args=(pipe, seed + i, until, counter)) for i in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return counter[0]

        # The KV pool is touched as it fills: warm up for a third of the time before taking the first size.
        warm = phase(args.seconds / 3, args.seed)
        before = resident_mb()
        done = phase(args.seconds * 2 / 3, args.seed + 1000)
        growth = resident_mb() - before
    print(f"soak: {warm} + {done} requests, resident {before:.0f} MB, growth {growth:+.0f} MB")
    if growth > GROWTH_LIMIT_MB:
        print(f"soak: resident size grew by more than {GROWTH_LIMIT_MB} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
