#!/usr/bin/env python3
"""Sets `lmdeploy bench model` beside a peer program on one GGUF file: A B A B ..., medians, and the ratio of each round.

    compare_with.py MODEL.gguf --peer llama.cpp/build/bin/llama-bench [--rounds 5] [--prompt 512] [--decode 128]
                    [--depth 0] [--threads N] [--dtype auto] [--program PATH/lmdeploy]
                    [--layer forward] [--max-load 0.3] [--wait 120] [--own-arguments "--rounded-activations true"]
                    [--peer-arguments "-fa 1"]

PEER takes llama-bench's arguments (-m MODEL -p PROMPT -n DECODE -d DEPTH -t THREADS -r 1 -o json) and prints its JSON:
a list of objects with n_prompt, n_gen and avg_ts (tokens a second). Both run with the same number of threads, batch 1.
Before each run the script waits until other programs keep less than --max-load CPUs busy; when they do not within --wait
seconds it goes on and marks the round. The forward pass alone is what llama-bench measures; --layer engine compares the
whole engine. --program is by default the release build of the checkout that the script lies in.
"""
from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """A program that did not run, or printed something else than figures."""


def busy_seconds() -> float:
    """Of all CPUs together, time stolen by the host's other guests included."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS


def busy_cpus(seconds: float) -> float:
    before, start = busy_seconds(), time.monotonic()
    time.sleep(seconds)
    return (busy_seconds() - before) / (time.monotonic() - start)


def wait_for_quiet(max_load: float, patience: float) -> float:
    """CPUs busy in the last second looked at."""
    end, told = time.monotonic() + patience, False
    while True:
        busy = busy_cpus(min(1.0, patience) if patience > 0 else 0.1)
        if busy < max_load or time.monotonic() >= end:
            return busy
        if not told:
            print(f"waiting up to {patience:g} s until fewer than {max_load:g} CPUs are busy ({busy:.2f} now)", file=sys.stderr)
            told = True


def output_of(command: list[str]) -> str:
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                             errors="replace", check=False)
    except OSError as error:
        raise Failure(f"cannot run {command[0]}: {error.strerror}") from error
    if run.returncode != 0:
        last = run.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failure(f"{command[0]} ended with code {run.returncode}: {last[0]}")
    return run.stdout


def check_programs(args: argparse.Namespace) -> None:
    for flag in ("program", "peer"):
        path = getattr(args, flag)
        if shutil.which(path) is None:
            raise Failure(f"--{flag} {path}: no program that can be run")


def number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise Failure(f"{what} is {value!r}, expected a number above 0")
    return float(value)


def peer_rows(text: str) -> list[dict]:
    """The rows of llama-bench's JSON, whatever it prints around that."""
    begin, end = text.find("["), text.rfind("]")
    try:
        rows = json.loads(text[begin:end + 1])
    except ValueError as error:
        raise Failure(f"the peer's output is not llama-bench's JSON: {error}") from error
    for row in rows:
        if not isinstance(row, dict) or not {"n_prompt", "n_gen", "avg_ts"} <= row.keys():
            raise Failure("the peer's output has a row without n_prompt, n_gen and avg_ts")
    return rows


def peer_rates(rows: list[dict]) -> dict[str, float]:
    """Tokens a second of "prefill" and "decode"."""
    rates = {}
    for row in rows:
        if row["n_prompt"] and row["n_gen"]:
            continue  # a prompt and its answer together
        rates["prefill" if row["n_prompt"] else "decode"] = number(row["avg_ts"], "the peer's avg_ts")
    return rates


def peer_version(rows: list[dict]) -> str:
    first = rows[0] if rows else {}
    return f"build {first['build_number']} ({first['build_commit']})" if "build_commit" in first else "version unknown"


def own_rates(figures: dict, layer: str) -> dict[str, float]:
    """The same of `lmdeploy bench model --json`."""
    return {case["kind"]: number(case[f"{layer}_tokens_per_s"]["median"], f"our {case['kind']}")
            for case in figures["cases"]}


def run_own(args: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        output_of([args.program, "bench", "model", args.model, "--prompt", str(args.prompt), "--decode", str(args.decode),
                   "--depth", str(args.depth), "--batch", "1", "--rounds", "1", "--threads", str(args.threads), "--dtype",
                   args.dtype, *shlex.split(args.own_arguments), "--json", str(file)])
        return own_rates(json.loads(file.read_text(encoding="utf-8")), args.layer)


def run_peer(args: argparse.Namespace) -> tuple[dict[str, float], str]:
    rows = peer_rows(output_of([args.peer, "-m", args.model, "-p", str(args.prompt), "-n", str(args.decode), "-d", str(args.depth),
                      "-t", str(args.threads), "-r", "1", "-o", "json", *shlex.split(args.peer_arguments)]))
    return peer_rates(rows), peer_version(rows)


def spread(values: list[float], digits: int = 1) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def with_figures(rates: dict[str, float], names: dict[str, str], program: str) -> dict[str, float]:
    for kind, name in names.items():
        if kind not in rates:
            raise Failure(f"{program} gave no figure for {name}")
    return rates


def table(own: list[dict[str, float]], peer: list[dict[str, float]], names: dict[str, str]) -> list[str]:
    lines = [f"{'tokens/s':16}{'lmdeploy':>24}{'peer':>24}{'lmdeploy/peer':>22}"]
    for kind, name in names.items():
        ours, theirs = [rates[kind] for rates in own], [rates[kind] for rates in peer]
        ratios = [a / b for a, b in zip(ours, theirs)]
        lines.append(f"{name:16}{spread(ours):>24}{spread(theirs):>24}{spread(ratios, 2):>22}")
    return lines


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def count(text: str) -> int:
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text} is not a count")
        return int(text)

    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--peer", required=True, metavar="PROGRAM")
    parser.add_argument("--peer-arguments", default="", metavar="WORDS")
    parser.add_argument("--own-arguments", default="", metavar="WORDS")
    parser.add_argument("--program", default=str(Path(__file__).resolve().parents[1] / "build/release/src/lmdeploy/cli/lmdeploy"))
    for flag, default in (("rounds", 5), ("prompt", 512), ("decode", 128), ("depth", 0)):
        parser.add_argument(f"--{flag}", type=count, default=default)
    parser.add_argument("--threads", type=count, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--layer", choices=["forward", "engine"], default="forward")
    parser.add_argument("--max-load", type=float, default=0.3)
    parser.add_argument("--wait", type=float, default=120)
    args = parser.parse_args(words)
    for flag, least in (("rounds", 1), ("threads", 1)):
        if getattr(args, flag) < least:
            parser.error(f"--{flag} must be at least {least}")
    if args.prompt == 0 and args.decode == 0:
        parser.error("nothing to measure: --prompt and --decode are both 0")
    return args


def compare(args: argparse.Namespace) -> None:
    check_programs(args)
    own, peer, loads, version = [], [], [], ""
    names = {}
    if args.prompt > 0:
        names["prefill"] = f"prefill {args.prompt}"
    if args.decode > 0:
        names["decode"] = f"decode {args.decode}" + (f" @ {args.depth}" if args.depth else "")
    for number_of_round in range(args.rounds):
        loads.append(wait_for_quiet(args.max_load, args.wait))
        own.append(with_figures(run_own(args), names, "lmdeploy"))
        loads.append(wait_for_quiet(args.max_load, args.wait))
        rates, version = run_peer(args)
        peer.append(with_figures(rates, names, "the peer"))
        print(f"round {number_of_round + 1}: others kept {loads[-2]:.2f} and {loads[-1]:.2f} CPUs busy before the two runs",
              file=sys.stderr)
    ours = "the forward pass alone" if args.layer == "forward" else "the whole engine"
    print(f"{Path(args.model).name}, {args.threads} threads, {args.rounds} rounds: {ours} beside {args.peer}, {version}")
    busy = sum(load >= args.max_load for load in loads)
    print(f"busy CPUs before a run: {spread(loads, 2)}; {busy} of {len(loads)} runs began on a busy machine")
    print("\n".join(table(own, peer, names)))


def main(words: list[str] | None = None) -> int:
    try:
        compare(arguments(words))
    except Failure as failure:
        print(f"compare_with.py: error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
