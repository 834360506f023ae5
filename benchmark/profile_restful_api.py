#!/usr/bin/env python3
"""Throughput and latency of a served model, over HTTP. Any server with OpenAI's /v1/completions will do.

    profile_restful_api.py --backend lmdeploy --dataset-name synthetic --num-prompts 200 --request-rate 8
    profile_restful_api.py http://127.0.0.1:23333 TOKENIZER_PATH ShareGPT.json --concurrency 64 --stream_output True

The second form is that of LMDeploy up to 0.6, with its report and its CSV file: chats whose prompt is a text, at most
--concurrency of them at once.
"""
from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import random
import sys
from typing import Any

from http_load import Reply, ask, first_model, run_requests
from report import framed, mean, percentiles, rate_lines, rates, write_csv
from request_set import Counter, Request, lognormal, sharegpt, uniform

PORTS = {"lmdeploy": 23333, "vllm": 8000, "sglang": 30000, "trt": 8000, "openai": 8000, "gserver": 9988}


def parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"found {text}; expected True or False")
    return text.lower() in ("true", "1")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("positional", nargs="*", metavar="SERVER_ADDR TOKENIZER_PATH DATASET", help="the older form")
    old = parser.add_argument_group("older form")
    old.add_argument("--server-addr")
    old.add_argument("--tokenizer-path", help="checkpoint whose tokenizer counts tokens; none: four letters are one")
    old.add_argument("--dataset", help="ShareGPT file, or `synthetic`")
    old.add_argument("--api-key")
    old.add_argument("--model-name", help="default: the first that is served")
    old.add_argument("--concurrency", type=int, default=128)
    old.add_argument("--top-p", type=float, default=1.0)
    old.add_argument("--temperature", type=float, default=1.0)
    old.add_argument("--stream-output", type=parse_bool, nargs="?", const=True, default=False)
    old.add_argument("--csv", default="./profile_api_server.csv")
    new = parser.add_argument_group("newer form")
    new.add_argument("--backend", choices=sorted(PORTS), default="lmdeploy")
    new.add_argument("--base-url", help="instead of --host and --port")
    new.add_argument("--host", default="0.0.0.0")
    new.add_argument("--port", type=int)
    new.add_argument("--dataset-name", choices=["sharegpt", "random", "synthetic", "image"], default="sharegpt")
    new.add_argument("--dataset-path", help="ShareGPT file")
    new.add_argument("--model", help="default: the first that is served")
    new.add_argument("--model-path", "--tokenizer", dest="tokenizer", help="as --tokenizer-path")
    new.add_argument("--num-prompts", type=int, help="default: 1000, in the older form 5000")
    new.add_argument("--sharegpt-output-len", type=int)
    new.add_argument("--random-input-len", type=int, default=1024)
    new.add_argument("--random-output-len", type=int, default=128)
    new.add_argument("--random-range-ratio", type=float, default=0.0)
    for name, default in (("count", "1"), ("resolution", "1080p"), ("format", "jpeg"), ("content", "random")):
        new.add_argument(f"--image-{name}", default=default, help="pictures are not supported")
    new.add_argument("--request-rate", type=float, default=float("inf"), help="requests a second, Poisson; inf: at once")
    new.add_argument("--seed", type=int, help="default: 1, in the older form 0")
    new.add_argument("--multi", action="store_true", help="a run for each rate of --request-rate-range")
    new.add_argument("--request-rate-range", default="2,34,2", help="first,end,step, or a list of others than three")
    new.add_argument("--output-file")
    new.add_argument("--disable-tqdm", action="store_true", help="there is no progress bar")
    new.add_argument("--disable-stream", action="store_true")
    new.add_argument("--disable-ignore-eos", action="store_true")
    new.add_argument("--disable-warmup", action="store_true")
    new.add_argument("--extra-request-body", type=json.loads, default={}, metavar="JSON")
    new.add_argument("--trust-remote-code", action="store_true", help="no code of a checkpoint is run")
    return parser


def read_arguments(words: list[str]) -> argparse.Namespace:
    """Underscores are hyphens in names of flags."""
    words = [name.replace("_", "-") + equals + value if word.startswith("--") else word
             for word in words for name, equals, value in [word.partition("=")]]
    parser = build_parser()
    args = parser.parse_intermixed_args(words)
    if len(args.positional) > 3:
        parser.error(f"found {len(args.positional)} positional arguments; expected SERVER_ADDR TOKENIZER_PATH DATASET")
    for name, value in zip(("server_addr", "tokenizer_path", "dataset"), args.positional, strict=False):
        setattr(args, name, value)
    args.older = args.server_addr is not None
    if args.older and args.dataset is None:
        parser.error("the older form needs SERVER_ADDR TOKENIZER_PATH DATASET")
    if args.num_prompts is None:
        args.num_prompts = 5000 if args.older else 1000
    if args.seed is None:
        args.seed = 0 if args.older else 1
    if args.num_prompts < 1 or args.concurrency < 1 or args.request_rate <= 0:
        parser.error("--num-prompts, --concurrency and --request-rate are above 0")
    if not args.older and args.dataset_name == "sharegpt" and args.dataset_path is None:
        parser.error("--dataset-name sharegpt needs --dataset-path FILE; there are also random and synthetic")
    if args.dataset_name == "image":
        parser.error("--dataset-name image: models take text only")
    return args


def make_requests(args: argparse.Namespace) -> list[Request]:
    counter = Counter(args.tokenizer_path if args.older else args.tokenizer)
    name = args.dataset_name
    path = args.dataset_path
    if args.older:
        name, path = ("synthetic", None) if args.dataset == "synthetic" else ("sharegpt", args.dataset)
    if name == "sharegpt":
        return sharegpt(path, args.num_prompts, counter, args.seed, args.sharegpt_output_len)
    sizes = (args.num_prompts, args.random_input_len, args.random_output_len)
    if name == "random":
        return uniform(*sizes, args.random_range_ratio, counter, args.seed)
    return lognormal(*sizes, counter, args.seed)


# The older form.

def run_older(args: argparse.Namespace) -> int:
    requests = make_requests(args)
    model = args.model_name or asyncio.run(first_model(args.server_addr, args.api_key))
    bodies = [{"model": model, "messages": one.prompt, "max_tokens": one.output_tokens, "top_p": args.top_p,
               "temperature": args.temperature, "ignore_eos": True, "stream": args.stream_output,
               **({"stream_options": {"include_usage": True}} if args.stream_output else {})} for one in requests]
    replies = asyncio.run(run_requests(bodies, args.server_addr, "/v1/chat/completions", args.api_key,
                                       args.concurrency))
    good = succeeded(replies)
    if not good:
        return 1
    elapsed = max(one.end for one in replies) - min(one.start for one in replies)
    prompt, completion = sum(one.prompt_tokens for one in good), sum(one.completion_tokens for one in good)
    first = [one.ttft for one in good] if args.stream_output else []
    lines = [f"concurrency: {args.concurrency}", f"elapsed_time: {elapsed:.3f}s"]
    if first:
        lines.append(f"first token latency(s)(min, max, ave): {min(first):.3f}, {max(first):.3f}, {mean(first):.3f}")
    print(framed([*lines, "", *rate_lines(len(good), prompt, completion, elapsed)]))
    rate = rates(len(good), prompt, completion, elapsed)
    shown = [f"{value:.3f}" for value in (mean(first), min(first), max(first))] if first else ["-"] * 3
    write_csv(args.csv, {
        "batch": args.concurrency, "num_prompts": len(requests), "RPS": f"{rate['rps']:.3f}",
        "RPM": f"{rate['rpm']:.3f}", **dict(zip(("FTL(ave)(s)", "FTL(min)(s)", "FTL(max)(s)"), shown, strict=True)),
        "throughput(out tok/s)": f"{rate['out']:.3f}", "throughput(total tok/s)": f"{rate['total']:.3f}"})
    return 0


def succeeded(replies: list[Reply]) -> list[Reply]:
    """Without those that failed, of which it prints how many and the first."""
    failures = [one.error for one in replies if one.error]
    if failures:
        print(f"{len(failures)} of {len(replies)} requests failed; the first: {failures[0]}", file=sys.stderr)
    return [one for one in replies if not one.error]


# The newer form.

def completion_body(args: argparse.Namespace, model: str, request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "prompt": request.prompt, "max_tokens": request.output_tokens,
                            "temperature": 0.0, "ignore_eos": not args.disable_ignore_eos,
                            "stream": not args.disable_stream}
    if not args.disable_stream:
        body["stream_options"] = {"include_usage": True}
    return {**body, **args.extra_request_body}


def arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Of a Poisson process."""
    rng, at, times = random.Random(seed), 0.0, []
    for _ in range(count):
        times.append(at)
        at += 0.0 if rate == float("inf") else rng.expovariate(rate)
    return times


def latency_lines(good: list[Reply]) -> tuple[list[str], dict[str, float]]:
    e2e = [one.latency * 1e3 for one in good]
    ttft = [one.ttft * 1e3 for one in good]
    tpot = [(one.latency - one.ttft) * 1e3 / (one.completion_tokens - 1) for one in good if one.completion_tokens > 1]
    itl = [(b - a) * 1e3 for one in good for a, b in zip(one.chunk_times, one.chunk_times[1:], strict=False)]
    lines = [f"{'End-to-End Latency':-^50}", *two(("Mean E2E Latency (ms):", mean(e2e)),
                                                  ("Median E2E Latency (ms):", median(e2e)))]
    for title, name, values in (("Time to First Token", "TTFT", ttft),
                                ("Time per Output Token (excl. 1st token)", "TPOT", tpot),
                                ("Inter-token Latency", "ITL", itl)):
        lines += [f"{title:-^50}", *two((f"Mean {name} (ms):", mean(values)), (f"Median {name} (ms):", median(values)),
                                        (f"P99 {name} (ms):", percentiles(values, (0.99,))[0]))]
    return lines, {"mean_e2e_latency_ms": mean(e2e), "mean_ttft_ms": mean(ttft), "mean_tpot_ms": mean(tpot),
                   "mean_itl_ms": mean(itl)}


def median(values: list[float]) -> float:
    return percentiles(values, (0.5,))[0]


def two(*rows: tuple[str, object]) -> list[str]:
    """Labels of 40 columns with their values."""
    return [f"{label:<40} {value:<10.2f}" if isinstance(value, float) else f"{label:<40} {value!s:<10}"
            for label, value in rows]


def run_newer(args: argparse.Namespace, rate: float, requests: list[Request]) -> int:
    base_url = args.base_url or f"http://{args.host}:{args.port or PORTS[args.backend]}"
    model = args.model or asyncio.run(first_model(base_url, args.api_key))
    bodies = [completion_body(args, model, one) for one in requests]
    if not args.disable_warmup and (failed := asyncio.run(ask(base_url, "/v1/completions", bodies[0], args.api_key)).error):
        print(f"the warm-up request failed: {failed}", file=sys.stderr)
        return 1
    replies = asyncio.run(run_requests(bodies, base_url, "/v1/completions", args.api_key,
                                       delays=arrivals(len(bodies), rate, args.seed)))
    good = succeeded(replies)
    if not good:
        return 1
    duration = max(one.end for one in replies) - min(one.start for one in replies)
    prompt, generated = sum(one.prompt_tokens for one in good), sum(one.completion_tokens for one in good)
    counter = Counter(args.tokenizer)
    again = sum(counter(one.text) for one in good) if counter.exact else generated
    per_second = {"request_throughput": len(good) / duration, "input_throughput": prompt / duration,
                  "output_throughput": generated / duration}
    lines, means = latency_lines(good)
    print(f"\n{' Serving Benchmark Result ':=^50}")
    print("\n".join(two(
        ("Backend:", args.backend), ("Traffic request rate:", rate if rate != float("inf") else "inf"),
        ("Successful requests:", len(good)), ("Benchmark duration (s):", duration), ("Total input tokens:", prompt),
        ("Total input text tokens:", prompt), ("Total input vision tokens:", 0), ("Total generated tokens:", generated),
        ("Total generated tokens (retokenized):", again),
        ("Request throughput (req/s):", per_second["request_throughput"]),
        ("Input token throughput (tok/s):", per_second["input_throughput"]),
        ("Output token throughput (tok/s):", per_second["output_throughput"])) + lines))
    print("=" * 50)
    write_csv(args.output_file or default_file(args), {
        "backend": args.backend, "dataset_name": args.dataset_name, "sharegpt_output_len": args.sharegpt_output_len,
        "random_input_len": args.random_input_len, "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio, "request_rate": rate, "completed": len(good),
        "total_input_tokens": prompt, "total_output_tokens": generated, "duration": duration, **per_second, **means},
        append=True)
    return 0


def default_file(args: argparse.Namespace) -> str:
    begin = f"{args.backend}_{datetime.datetime.now():%m%d}_{args.num_prompts}"
    if args.dataset_name == "sharegpt":
        return f"{begin}_sharegpt.csv"
    return f"{begin}_{args.dataset_name}_{args.random_input_len}_{args.random_output_len}.jsonl"


def rates_to_try(args: argparse.Namespace) -> list[float]:
    if not args.multi:
        return [args.request_rate]
    numbers = [float(word) for word in args.request_rate_range.split(",")]
    if len(numbers) != 3:
        return numbers
    first, end, step = map(int, numbers)
    return [float(rate) for rate in range(first, end, step)]


def main(words: list[str] | None = None) -> int:
    args = read_arguments(sys.argv[1:] if words is None else words)
    try:
        if args.older:
            return run_older(args)
        requests = make_requests(args)
        return max(run_newer(args, rate, requests) for rate in rates_to_try(args))
    except OSError as error:
        print(f"profile_restful_api.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
