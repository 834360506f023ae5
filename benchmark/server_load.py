#!/usr/bin/env python3
"""A server under many connections: what streaming costs it, how fast it stays, and what is left behind.

    server_load.py --model MODEL --idle 500 --streams 100       # starts a server of its own
    server_load.py --url http://127.0.0.1:23333 --pid PID       # one that runs on this machine
    server_load.py --model MODEL --soak 20000                   # requests of which 1 in 10 is dropped, 1 in 20 malformed

Server CPU per streamed token is the CPU time of all threads of the server's process but those of the engine (lmd-...),
by the number of tokens. Added latency is how long /health takes
meanwhile: its way through the server is that of a token, its answer needs no model; it is measured under full load and
under half of it, where 99 in 100 should take at most --gate-ms more on a machine that does nothing else. --soak compares memory, file
descriptors, threads and cache blocks after the first tenth with those at the end and fails when something stays behind.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import resource
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from http_load import Connection, ask
from report import percentiles

GROWTH_LIMIT_MIB = 50
GAUGES = ("num_requests_running", "num_requests_waiting", "num_api_requests_routed", "num_api_requests_waiting",
          "num_used_blocks")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="starts `lmdeploy serve api_server MODEL` on a free port")
    parser.add_argument("--flags", default="", help="more flags of that server, in one text")
    parser.add_argument("--url", help="a server that runs")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument("--idle", type=int, default=100, help="connections that say nothing")
    parser.add_argument("--streams", type=int, default=50, help="connections that stream")
    parser.add_argument("--rounds", type=int, default=2, help="requests of each streaming connection")
    parser.add_argument("--tokens", type=int, default=100, help="tokens of each answer")
    parser.add_argument("--share", type=float, default=1.0, help="of the time in which each of them streams; (0, 1]")
    parser.add_argument("--gate-ms", type=float, default=5.0,
                        help="most that p99 may take longer at half load; more fails, unless others use the machine")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    parser.add_argument("--soak", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--concurrency", type=int, default=32, help="of --soak")
    parser.add_argument("--seed", type=int, default=1)
    return parser


@dataclass
class Server:
    url: str
    pid: int

    def cpu_seconds(self) -> tuple[float, float]:
        """Of the engine's threads, and of all others."""
        engine = others = 0
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            nanoseconds = int((task / "schedstat").read_text().split()[0])
            if (task / "comm").read_text().startswith("lmd-"):
                engine += nanoseconds
            else:
                others += nanoseconds
        return engine / 1e9, others / 1e9

    def resident_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def counts(self) -> dict[str, int]:
        return {"file descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
                "threads": len(os.listdir(f"/proc/{self.pid}/task"))}

    async def metrics(self) -> dict[str, float]:
        connection = Connection(self.url)
        try:
            await connection.open("GET", "/metrics")
            page = (await connection.read()).decode()
        finally:
            connection.close()
        return {name: float(value) for name, value in re.findall(r"^lmdeploy:(\w+)\{[^}]*\} (\S+)$", page, re.MULTILINE)}

    async def settle(self, seconds: float = 20) -> dict[str, float]:
        """Waits until nothing runs."""
        until = time.monotonic() + seconds
        while True:
            values = await self.metrics()
            if all(values[name] == 0 for name in GAUGES) or time.monotonic() > until:
                return values
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def server_of(args: argparse.Namespace) -> Iterator[Server]:
    if args.url:
        yield Server(args.url, args.pid)
        return
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    beside = pathlib.Path(sys.executable).with_name("lmdeploy")
    program = str(beside) if beside.exists() else shutil.which("lmdeploy") or "lmdeploy"
    process = subprocess.Popen([program, "serve", "api_server", args.model, "--server-name", "127.0.0.1",
                                "--server-port", str(port), "--log-level", "ERROR", *args.flags.split()],
                               stdout=subprocess.DEVNULL)
    try:
        server = Server(f"http://127.0.0.1:{port}", process.pid)
        while asyncio.run(health_status(server)) != 200:
            if process.poll() is not None:
                raise SystemExit(f"the server has ended with code {process.returncode}")
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait()


async def health_status(server: Server) -> int:
    connection = Connection(server.url)
    try:
        return await connection.open("GET", "/health")
    except OSError:
        return 0
    finally:
        connection.close()


class Probe:
    """A process of its own that times /health on one connection, so that what holds up this one is not counted."""

    def __init__(self, url: str):
        self.process = subprocess.Popen([sys.executable, __file__, "--probe", url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.process.stdout.readline()  # type: ignore[union-attr]  # it runs

    def stop(self) -> list[float]:
        """Milliseconds of each answer."""
        return json.loads(self.process.communicate()[0])


def run_probe(url: str) -> int:
    """Until standard input is closed."""
    address = Connection(url)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    latencies = []
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        begun = time.perf_counter()
        connection.request("GET", "/health")
        reply = connection.getresponse()
        reply.read()
        if reply.status != 200:
            raise SystemExit(f"/health: status {reply.status}")
        latencies.append((time.perf_counter() - begun) * 1e3)
    print(json.dumps(latencies))
    return 0


def body_of(args: argparse.Namespace, stream: bool) -> dict:
    return {"prompt": "a", "max_tokens": args.tokens, "ignore_eos": True, "temperature": 0, "stream": stream,
            **({"stream_options": {"include_usage": True}} if stream else {})}


@dataclass
class Phase:
    engine_us: float  # CPU time by token
    others_us: float
    tokens_per_s: float
    errors: list[str]
    health_ms: list[float]


async def phase(server: Server, args: argparse.Namespace, stream: bool) -> Phase:
    async def one(i: int) -> list:
        """Pauses that leave the connection busy for its share of the time."""
        replies = []
        await asyncio.sleep((1 - args.share) * i / args.streams)
        for _ in range(args.rounds):
            replies.append(await ask(server.url, "/v1/completions", body_of(args, stream)))
            await asyncio.sleep(replies[-1].latency * (1 / args.share - 1))
        return replies

    probe = Probe(server.url)
    start, before = time.monotonic(), server.cpu_seconds()
    replies = [reply for of_one in await asyncio.gather(*map(one, range(args.streams))) for reply in of_one]
    seconds, after = time.monotonic() - start, server.cpu_seconds()
    latencies = probe.stop()
    tokens = max(sum(reply.completion_tokens for reply in replies), 1)
    return Phase((after[0] - before[0]) / tokens * 1e6, (after[1] - before[1]) / tokens * 1e6, tokens / seconds,
                 [reply.error for reply in replies if reply.error], latencies)


def print_latency(name: str, values: list[float], quiet: list[float]) -> float:
    """The p99 that it adds to `quiet`."""
    median, p99 = percentiles(values, (0.5, 0.99))
    quiet_median, quiet_p99 = percentiles(quiet, (0.5, 0.99))
    print(f"/health, {name}: p50 {median:.2f} ms, p99 {p99:.2f} ms of {len(values)}; added: p50 "
          f"{median - quiet_median:.2f} ms, p99 {p99 - quiet_p99:.2f} ms")
    return p99 - quiet_p99


async def load(server: Server, args: argparse.Namespace) -> int:
    others = os.getloadavg()[0]
    probe = Probe(server.url)
    await asyncio.sleep(1.5)
    quiet = probe.stop()
    host, port = Connection(server.url).host, Connection(server.url).port
    idle = [await asyncio.open_connection(host, port) for _ in range(args.idle)]
    await phase(server, args, stream=True)  # warm-up
    whole, streamed = await phase(server, args, stream=False), await phase(server, args, stream=True)
    half = await phase(server, argparse.Namespace(**{**vars(args), "share": args.share / 2}), stream=True)
    for _, writer in idle:
        writer.close()
    print(f"connections: {args.idle} idle + {args.streams} streaming, {args.rounds} answers of {args.tokens} tokens each")
    for name, one in (("streamed", streamed), ("whole", whole)):
        print(f"{name} answers: {one.tokens_per_s:.0f} tokens/s, server CPU {one.others_us:.1f} us per token, the "
              f"engine's {one.engine_us:.1f} us")
    print_latency("no load", quiet, quiet)
    print_latency("full load", streamed.health_ms, quiet)
    added = print_latency("half load", half.health_ms, quiet)
    too_slow = added > args.gate_ms
    print(f"p99 added at half load: {added:.2f} ms, at most {args.gate_ms:g} ms expected: " +
          ("too slow" if too_slow else "good") + f" (load of the machine before: {others:.2f} of {os.cpu_count()} cores)")
    errors = whole.errors + streamed.errors + half.errors
    print(f"errors: {len(errors)}" + (f"; the first: {errors[0]}" if errors else ""))
    return 1 if errors or (too_slow and others < 0.5) else 0


MALFORMED = (b'{"prompt":', b"[]", b"null", b'{"prompt": 3}', b'{"prompt": "a", "top_p": 7}', b"\xff\xfe", b"")


async def soak_request(server: Server, rng: random.Random, outcomes: dict[str, int]) -> None:
    stream, dropped, malformed = rng.random() < 0.5, rng.random() < 0.1, rng.random() < 0.05
    letters = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(rng.randint(1, 60)))
    fields = {"prompt": letters, "max_tokens": rng.randint(1, 40), "stream": stream,
              **({"logprobs": 2} if rng.random() < 0.2 else {})}
    body = rng.choice(MALFORMED) if malformed else json.dumps(fields).encode()
    connection = Connection(server.url)
    outcome = "answered"
    try:
        if dropped:
            outcome = "dropped"
            await asyncio.wait_for(_whole(connection, body), rng.random() * 0.03)
        else:
            status = await _whole(connection, body)
            expected = 400 if malformed else 200
            outcome = ("refused" if malformed else "answered") if status == expected else f"status {status}"
    except asyncio.TimeoutError:
        pass
    except (OSError, asyncio.IncompleteReadError) as error:
        outcome = repr(error)
    finally:
        connection.close()
    outcomes[outcome] = outcomes.get(outcome, 0) + 1


async def _whole(connection: Connection, body: bytes) -> int:
    status = await connection.open("POST", "/v1/completions", body)
    await connection.read()
    return status


async def soak(server: Server, args: argparse.Namespace) -> int:
    rng = random.Random(args.seed)
    outcomes: dict[str, int] = {}

    async def run(count: int) -> None:
        left = iter(range(count))

        async def work() -> None:
            for _ in left:
                await soak_request(server, rng, outcomes)

        await asyncio.gather(*(work() for _ in range(args.concurrency)))

    begun = time.monotonic()
    states = []
    for count in (args.soak // 10, args.soak - args.soak // 10):
        await run(count)
        values = await server.settle()
        await asyncio.sleep(0.5)  # the last connections close
        states.append((server.resident_mib(), server.counts(), values))
    (mib_before, counts_before, before), (mib_after, counts_after, after) = states
    print(f"{args.soak} requests in {time.monotonic() - begun:.0f} s: " +
          ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items())))
    print(f"resident: {mib_before:.1f} MiB after the first tenth, {mib_after:.1f} at the end")
    for name, count in counts_after.items():
        print(f"{name}: {counts_before[name]}, {count}")
    blocks = {name: int(after[f"num_{name}_blocks"]) for name in ("free", "used", "cached", "total")}
    print("blocks: " + ", ".join(f"{count} {name}" for name, count in blocks.items()))
    problems = [name for name in GAUGES if after[name] != 0]
    problems += [name for name in outcomes if name not in ("answered", "dropped", "refused")]
    problems += [name for name, count in counts_after.items() if count > counts_before[name]]
    if mib_after > mib_before + GROWTH_LIMIT_MIB:
        problems.append("memory")
    if blocks["free"] + blocks["used"] + blocks["cached"] != blocks["total"]:
        problems.append("blocks")
    if after["num_sessions"] != before["num_sessions"]:
        problems.append("sessions")
    print("left behind: " + (", ".join(problems) or "nothing"))
    return 1 if problems else 0


def main(words: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(words)
    if args.probe:
        return run_probe(args.probe)
    if not 0 < args.share <= 1:
        parser.error("--share is in (0, 1]")
    if (args.model is None) == (args.url is None) or (args.url is not None and args.pid is None):
        parser.error("expected --model MODEL, or --url URL and --pid PID")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with server_of(args) as server:
        return asyncio.run(soak(server, args) if args.soak else load(server, args))


if __name__ == "__main__":
    sys.exit(main())
