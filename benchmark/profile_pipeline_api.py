#!/usr/bin/env python3
"""Throughput of lmdeploy.pipeline() on a set of requests; no chat template, answers of a given length.

    profile_pipeline_api.py ShareGPT.json MODEL --concurrency 64 --num-prompts 500
    profile_pipeline_api.py - MODEL --dataset-name synthetic --random-input-len 128 --random-output-len 64
"""
import sys
import time

from local_profile import Run, build_parser, engine_config, generation_config, note, profile, read_arguments


def main(words=None) -> int:
    args = read_arguments(build_parser(__doc__, "./profile_pipeline_api.csv"), words)
    from lmdeploy import pipeline

    with pipeline(args.model_path, backend_config=engine_config(args), log_level=args.log_level) as pipe:
        def run(requests) -> list[Run]:
            configs = [generation_config(args, one.output_tokens) for one in requests]
            prompts = [one.prompt for one in requests]
            start = time.perf_counter()
            runs = [Run(start, one.output_tokens) for one in requests]
            if args.stream_output is False or (args.stream_output is None and args.dataset_name is None):
                for one, answer in zip(runs, pipe(prompts, gen_config=configs, do_preprocess=False), strict=True):
                    note(one, answer.input_token_len, answer.generate_token_len)
            else:
                for piece in pipe.stream_infer(prompts, gen_config=configs, do_preprocess=False):
                    note(runs[piece.index], piece.input_token_len, piece.generate_token_len)
            return runs

        return profile(args, "Profile pipeline API", run, with_latency=False)


if __name__ == "__main__":
    sys.exit(main())
