"""The scripts of benchmark/ on tiny models: reports, CSV files, arguments of all versions."""
import csv
import json
import pathlib
import subprocess
import sys

import pytest
from api_server import api_server

BENCHMARK = pathlib.Path(__file__).parents[2] / "benchmark"
SYNTHETIC = ["--dataset-name", "synthetic", "--random-input-len", "24", "--random-output-len", "8"]
OLD_CSV = ["RPS", "RPM", "throughput(out tok/s)", "throughput(total tok/s)"]
NEW_CSV = ["completed", "total_input_tokens", "total_output_tokens", "duration", "request_throughput",
           "input_throughput", "output_throughput", "mean_e2e_latency_ms", "mean_ttft_ms", "mean_tpot_ms",
           "mean_itl_ms"]


def run(script: str, *arguments: str, folder: pathlib.Path, code: int = 0) -> str:
    done = subprocess.run([sys.executable, BENCHMARK / script, *map(str, arguments)], cwd=folder, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


def rows(path: pathlib.Path) -> tuple[list[str], list[dict[str, str]]]:
    with open(path, encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory):
    """A file as ShareGPT's: the last dialogues are of no use."""
    path = tmp_path_factory.mktemp("data") / "sharegpt.json"
    turns = [["tell me a story", "once upon a time"], ["what is this", "it is a test"], ["a", "too short a prompt"],
             ["one turn only"], ["long" * 300, "more than 1024 tokens"]]
    path.write_text(json.dumps([{"conversations": [{"from": "human", "value": text} for text in of_one]}
                                for of_one in turns]))
    return str(path)


@pytest.fixture(scope="module")
def server(endless_path, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with api_server(endless_path, log, "--session-len", "2048", "--num-threads", "1", "--api-keys", "k",
                    "--model-name", "m") as started:
        yield started


def test_restful_as_today(server, tmp_path):
    command = ["profile_restful_api.py", "--backend", "lmdeploy", "--base-url", server.url, "--api_key=k", *SYNTHETIC,
               "--num_prompts", "6", "--output-file", "out.csv"]
    text = run(*command, "--request-rate", "50", folder=tmp_path)
    for label in ("Backend:", "Traffic request rate:", "Successful requests:", "Benchmark duration (s):",
                  "Total input tokens:", "Total input text tokens:", "Total input vision tokens:",
                  "Total generated tokens:", "Total generated tokens (retokenized):", "Request throughput (req/s):",
                  "Input token throughput (tok/s):", "Output token throughput (tok/s):", "Mean E2E Latency (ms):",
                  "Median E2E Latency (ms):", "Mean TTFT (ms):", "P99 TPOT (ms):", "Median ITL (ms):"):
        assert f"\n{label:<40} " in text
    assert "= Serving Benchmark Result =" in text
    run(*command, folder=tmp_path)
    header, found = rows(tmp_path / "out.csv")
    assert header == ["backend", "dataset_name", "sharegpt_output_len", "random_input_len", "random_output_len",
                      "random_range_ratio", "request_rate", *NEW_CSV]
    assert [row["completed"] for row in found] == ["6", "6"] and found[1]["request_rate"] == "inf"
    assert found[0]["total_output_tokens"] == found[1]["total_output_tokens"] != "0"


@pytest.mark.parametrize("stream", ["True", "False"])
def test_restful_as_it_was(server, endless_path, dialogues, tmp_path, stream):
    text = run("profile_restful_api.py", server.url.removeprefix("http://"), endless_path, dialogues, "--api_key", "k",
               "--concurrency", "2", "--num_prompts", "9", "--stream_output", stream, folder=tmp_path)
    assert "number of completion tokens: 28\n" in text and ("first token latency" in text) == (stream == "True")
    header, found = rows(tmp_path / "profile_api_server.csv")
    assert header == ["batch", "num_prompts", "RPS", "RPM", "FTL(ave)(s)", "FTL(min)(s)", "FTL(max)(s)",
                      "throughput(out tok/s)", "throughput(total tok/s)"]
    assert found[0]["batch"] == "2" and (found[0]["FTL(ave)(s)"] == "-") == (stream == "False")


def test_restful_says_what_is_wrong(server, tmp_path):
    assert "sharegpt needs --dataset-path" in run("profile_restful_api.py", folder=tmp_path, code=2)
    assert "text only" in run("profile_restful_api.py", "--dataset-name", "image", folder=tmp_path, code=2)
    wrong_key = ["--base-url", server.url, *SYNTHETIC, "--num-prompts", "1", "--model", "m"]
    assert "status 401" in run("profile_restful_api.py", *wrong_key, folder=tmp_path, code=1)


@pytest.mark.parametrize("script, latencies", [("profile_pipeline_api", False), ("profile_throughput", True)])
def test_local_profiles(script, latencies, endless_path, dialogues, tmp_path):
    text = run(f"{script}.py", dialogues, endless_path, "--concurrency", "2", "-n", "9", "--session_len", "512",
               folder=tmp_path)
    assert "number of completion tokens: 28\n" in text and ("first token latency" in text) == latencies
    header, _ = rows(tmp_path / f"{script}.csv")
    first = ["FTL(ave)(s)", "FTL(min)(s)", "FTL(max)(s)", "50%(s)", "75%(s)", "95%(s)", "99%(s)"] if latencies else []
    assert header == ["batch", "num_promts", "RPS", "RPM", *first, "throughput(out tok/s)", "throughput(total tok/s)"]
    text = run(f"{script}.py", "-", endless_path, *SYNTHETIC, "-c", "4", "-n", "6", "--session-len", "512", "--csv",
               "new.csv", folder=tmp_path)
    assert "Time to First Token (TTFT)" in text and "Tokens per Tick" in text
    header, found = rows(tmp_path / "new.csv")
    assert header == ["backend", "bs", "dataset_name", "sharegpt_output_len", "random_input_len", "random_output_len",
                      "random_range_ratio", "num_prompts", *NEW_CSV]
    assert found[0]["completed"] == "6"


def test_request_sets(dialogues):
    sys.path.insert(0, str(BENCHMARK))
    try:
        import request_set
    finally:
        sys.path.remove(str(BENCHMARK))
    counter = request_set.Counter()
    one, two = (request_set.lognormal(50, 64, 32, counter, seed) for seed in (3, 3))
    assert one == two != request_set.lognormal(50, 64, 32, counter, 4)
    assert 20 < sorted(request.output_tokens for request in one)[25] < 50
    for request in request_set.uniform(50, 64, 32, 0.5, counter, 1):
        assert 16 <= request.output_tokens <= 32 and request.prompt_tokens <= 64
    assert len(request_set.sharegpt(dialogues, 1, request_set.Counter(), 0, output_len=5)) == 1


def test_server_load(endless_path, tmp_path):
    text = run("server_load.py", "--model", endless_path, "--idle", "20", "--streams", "5", "--tokens", "20",
               "--gate-ms", "1e9", "--flags", "--session-len 512 --num-threads 1", folder=tmp_path)
    assert "server CPU" in text and "full load: p50" in text and "errors: 0" in text
    assert "p99 added at half load" in text and "good (load of the machine before:" in text
    text = run("server_load.py", "--model", endless_path, "--soak", "300", "--concurrency", "8",
               "--flags", "--session-len 512 --num-threads 1", folder=tmp_path)
    assert "dropped" in text and "refused" in text and "left behind: nothing" in text
