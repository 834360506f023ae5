#!/usr/bin/env python3
"""Throughput of the engine on a set of requests: token ids in and out, no chat template, answers of a given length.

    profile_throughput.py ShareGPT.json MODEL --concurrency 64 --num-prompts 500
    profile_throughput.py - MODEL --dataset-name random --random-input-len 128 --random-output-len 64
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from local_profile import Run, build_parser, engine_config, generation_config, note, profile, read_arguments


def main(words=None) -> int:
    args = read_arguments(build_parser(__doc__, "./profile_throughput.csv"), words)
    from lmdeploy import Tokenizer
    from lmdeploy.turbomind import TurboMind

    engine = TurboMind.from_pretrained(args.model_path, engine_config=engine_config(args))
    tokenizer = Tokenizer(args.model_path)

    def run(requests) -> list[Run]:
        def one_run(job) -> Run:
            session_id, request, ids = job
            one = Run(time.perf_counter(), request.output_tokens)
            for output in engine.create_instance().stream_infer(
                    session_id, ids, gen_config=generation_config(args, one.wanted), sequence_end=True,
                    stream_output=args.stream_output is not False):
                note(one, len(ids), output.num_token)
            return one

        jobs = [(i + 1, one, tokenizer.encode(one.prompt)) for i, one in enumerate(requests)]
        with ThreadPoolExecutor(min(args.concurrency, len(jobs))) as workers:
            return list(workers.map(one_run, jobs))

    return profile(args, "Profile throughput", run, with_latency=True)


if __name__ == "__main__":
    sys.exit(main())
