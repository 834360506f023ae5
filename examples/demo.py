"""Asks a model three questions through the Python API and prints answers and speed.

    python examples/demo.py MODEL
"""
import sys
import time

from lmdeploy import GenerationConfig, pipeline

QUESTIONS = [
    "What is the capital of Germany?",
    "Explain in one sentence why the sky is blue.",
    "Write a two-line poem about the sea.",
]


def main() -> None:
    start = time.perf_counter()
    with pipeline(sys.argv[1]) as pipe:
        print(f"loaded {sys.argv[1]} in {time.perf_counter() - start:.2f} s\n", flush=True)
        start = time.perf_counter()
        responses = pipe(QUESTIONS, gen_config=GenerationConfig(max_new_tokens=96))
        seconds = time.perf_counter() - start
        for question, response in zip(QUESTIONS, responses):
            print(f"Q: {question}\nA: {response.text.strip()}\n")
        tokens = sum(response.generate_token_len for response in responses)
        print(f"{tokens} tokens in {seconds:.2f} s: {tokens / seconds:.1f} tokens/s (3 prompts together)")


if __name__ == "__main__":
    main()
