"""What profile_pipeline_api.py and profile_throughput.py share: flags, the request set, the reports."""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from report import framed, mean, percentiles, rate_lines, rates, write_csv
from request_set import Counter, Request, lognormal, sharegpt, uniform


@dataclass
class Run:
    """One request: when it began, and for each output its time and the tokens up to then."""

    start: float
    wanted: int
    prompt_tokens: int = 0
    outputs: list[tuple[float, int]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.outputs[-1][1] if self.outputs else 0

    @property
    def done(self) -> bool:
        return self.tokens >= self.wanted


def build_parser(description: str, csv: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="ShareGPT file; with --dataset-name random or synthetic it is not read")
    parser.add_argument("model_path")
    parser.add_argument("-c", "--concurrency", type=int, default=256, help="requests at once")
    parser.add_argument("-n", "--num-prompts", type=int, default=5000)
    parser.add_argument("--csv", default=csv)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=0.8)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=1)
    parser.add_argument("--stream-output", action=argparse.BooleanOptionalAction, default=None)
    newer = parser.add_argument_group("with --dataset-name, the newer report")
    newer.add_argument("--dataset-name", choices=["sharegpt", "random", "synthetic"])
    newer.add_argument("--sharegpt-output-len", type=int)
    newer.add_argument("--random-input-len", type=int, default=1024)
    newer.add_argument("--random-output-len", type=int, default=128)
    newer.add_argument("--random-range-ratio", type=float, default=0.0)
    for name in ("--skip-tokenize", "--skip-detokenize", "--use-uvloop"):
        newer.add_argument(name, action="store_true", help="no effect: it is part of the engine's threads here")
    newer.add_argument("--cancel-rate", type=float, default=0, help="not supported beyond 0")
    engine = parser.add_argument_group("engine")
    engine.add_argument("--log-level", default="ERROR")
    engine.add_argument("--backend", choices=["turbomind", "pytorch"], default="turbomind")
    engine.add_argument("--tp", type=int, default=1)
    engine.add_argument("--session-len", type=int, default=4096)
    engine.add_argument("--cache-max-entry-count", type=float)
    engine.add_argument("--cache-block-seq-len", type=int, default=64)
    engine.add_argument("--enable-prefix-caching", action="store_true")
    engine.add_argument("--quant-policy", type=int, default=0)
    engine.add_argument("--model-format")
    engine.add_argument("--num-tokens-per-iter", type=int)
    engine.add_argument("--max-prefill-iters", type=int)
    return parser


def read_arguments(parser: argparse.ArgumentParser, words: list[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if words is None else words
    words = [name.replace("_", "-") + equals + value if word.startswith("--") else word
             for word in words for name, equals, value in [word.partition("=")]]
    args = parser.parse_args(words)
    if args.num_prompts < 1 or args.concurrency < 1:
        parser.error("--num-prompts and --concurrency are above 0")
    if args.cancel_rate != 0:
        parser.error("--cancel-rate: only 0 is supported; benchmark/server_load.py drops requests")
    return args


def engine_config(args: argparse.Namespace):
    from lmdeploy import TurbomindEngineConfig
    fields = {name: getattr(args, name) for name in (
        "tp", "session_len", "cache_block_seq_len", "enable_prefix_caching", "quant_policy", "cache_max_entry_count",
        "model_format", "num_tokens_per_iter", "max_prefill_iters") if getattr(args, name) is not None}
    return TurbomindEngineConfig(max_batch_size=args.concurrency, **fields)


def generation_config(args: argparse.Namespace, tokens: int):
    from lmdeploy import GenerationConfig
    return GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=True, top_p=args.top_p,
                            top_k=args.top_k, temperature=args.temperature)


def make_requests(args: argparse.Namespace) -> list[Request]:
    counter = Counter(args.model_path)
    sizes = (args.num_prompts, args.random_input_len, args.random_output_len)
    if args.dataset_name == "random":
        return uniform(*sizes, args.random_range_ratio, counter, args.seed)
    if args.dataset_name == "synthetic":
        return lognormal(*sizes, counter, args.seed)
    return sharegpt(args.dataset, args.num_prompts, counter, args.seed, args.sharegpt_output_len)


def profile(args: argparse.Namespace, title: str, run: Callable[[list[Request]], list[Run]],
            with_latency: bool) -> int:
    requests = make_requests(args)
    runs = run(requests)
    good = [one for one in runs if one.done]
    if len(good) < len(runs):
        print(f"{len(runs) - len(good)} of {len(runs)} requests ended before their length", file=sys.stderr)
    if not good:
        return 1
    seconds = max(one.outputs[-1][0] for one in good) - min(one.start for one in runs)
    if args.dataset_name is None:
        older_report(args, good, seconds, with_latency)
    else:
        newer_report(args, title, runs, good, seconds)
    return 0


def totals(good: list[Run]) -> tuple[int, int]:
    return sum(one.prompt_tokens for one in good), sum(one.tokens for one in good)


def token_latencies(run: Run) -> list[float]:
    """An output with several new tokens: its time for the first of them, 0 for the others."""
    latencies, at, count = [], run.start, 0
    for time_, tokens in run.outputs:
        latencies += [time_ - at, *[0.0] * (tokens - count - 1)][:max(tokens - count, 0)]
        at, count = time_, max(tokens, count)
    return latencies


def older_report(args: argparse.Namespace, good: list[Run], seconds: float, with_latency: bool) -> None:
    prompt, completion = totals(good)
    first = [one.outputs[0][0] - one.start for one in good]
    others = percentiles([latency for one in good for latency in token_latencies(one)[1:]])
    shown = [f"{value:.3f}" for value in (mean(first), min(first), max(first), *others)]
    if with_latency:
        lines = [f"concurrency: {args.concurrency}", f"elapsed_time: {seconds:.3f}s"]
        if args.stream_output is not False:
            lines += [f"first token latency(s)(min, max, ave): {shown[1]}, {shown[2]}, {shown[0]}",
                      f"per-token latency(s) percentile(50, 75, 95, 99): [{', '.join(shown[3:])}]"]
    else:
        lines = [f"concurrency: {args.concurrency}", f"elapsed_time: {seconds:.3f}s",
                 f"number of prompts: {len(good)}"]
    print(framed([*lines, "", *rate_lines(len(good), prompt, completion, seconds)]))
    rate = rates(len(good), prompt, completion, seconds)
    row: dict[str, object] = {"batch": args.concurrency, "num_promts": args.num_prompts, "RPS": f"{rate['rps']:.3f}",
                              "RPM": f"{rate['rpm']:.3f}"}
    if with_latency:
        names = ("FTL(ave)(s)", "FTL(min)(s)", "FTL(max)(s)", "50%(s)", "75%(s)", "95%(s)", "99%(s)")
        row |= dict(zip(names, shown if args.stream_output is not False else ["-"] * 7, strict=True))
    write_csv(args.csv, {**row, "throughput(out tok/s)": f"{rate['out']:.3f}",
                         "throughput(total tok/s)": f"{rate['total']:.3f}"})


def newer_report(args: argparse.Namespace, title: str, runs: list[Run], good: list[Run], seconds: float) -> None:
    prompt, completion = totals(good)
    e2e = [one.outputs[-1][0] - one.start for one in good]
    ttft = [one.outputs[0][0] - one.start for one in good]
    tpot = [(one.outputs[-1][0] - one.outputs[0][0]) / (one.tokens - one.outputs[0][1])
            for one in good if one.tokens > one.outputs[0][1]]
    itl = [b[0] - a[0] for one in good for a, b in zip(one.outputs, one.outputs[1:], strict=False)]
    counts = [[0, *[tokens for _, tokens in one.outputs]] for one in good]
    ticks = [float(b - a) for of_one in counts for a, b in zip(of_one, of_one[1:], strict=False)]
    rate = rates(len(good), prompt, completion, seconds)
    rows = [("Benchmark duration", seconds), ("Total requests", len(runs)), ("Successful requests", len(good)),
            ("Total input tokens", prompt), ("Total generated tokens", completion),
            ("Input throughput (tok/s)", prompt / seconds), ("Output throughput (tok/s)", rate["out"]),
            ("Request throughput (req/s)", rate["rps"])]
    print(f"\n{f' {title} ':=^80}")
    for label, value in rows:
        print(f"{label:<40}{f'{value:.3f}' if isinstance(value, float) else value:>10}")
    print("-" * 80)
    print(f"{'':<40}" + "".join(f"{name:>10}" for name in ("mean", "P50", "P75", "P95", "P99")))
    latencies = [("End-to-end Latency", e2e)]
    if args.stream_output is not False:
        latencies += [("Time to First Token (TTFT)", ttft), ("Time per Output Token (TPOT)", tpot),
                      ("Inter-token Latency (ITL)", itl), ("Tokens per Tick", ticks)]
    for label, values in latencies:
        print(f"{label:<40}" + "".join(f"{value:>10.3f}" for value in (mean(values), *percentiles(values))))
    print("=" * 80)
    streamed = args.stream_output is not False
    write_csv(args.csv, {
        "backend": args.backend, "bs": args.concurrency, "dataset_name": args.dataset_name,
        "sharegpt_output_len": args.sharegpt_output_len, "random_input_len": args.random_input_len,
        "random_output_len": args.random_output_len, "random_range_ratio": args.random_range_ratio,
        "num_prompts": args.num_prompts, "completed": len(good), "total_input_tokens": prompt,
        "total_output_tokens": completion, "duration": seconds, "request_throughput": rate["rps"],
        "input_throughput": prompt / seconds, "output_throughput": rate["out"], "mean_e2e_latency_ms": mean(e2e) * 1e3,
        **{f"mean_{name}_ms": mean(values) * 1e3 if streamed else "-"
           for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", itl))}}, append=True)


def note(run: Run, prompt_tokens: int, tokens: int) -> None:
    run.prompt_tokens = prompt_tokens
    run.outputs.append((time.perf_counter(), tokens))
