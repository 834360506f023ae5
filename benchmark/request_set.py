"""What a benchmark asks: dialogues of a ShareGPT file, random tokens, or synthetic texts with log-normal lengths."""
from __future__ import annotations

import json
import pathlib
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WORDS = ("time year people way day man thing woman life child world school state family student group country problem "
         "hand part place case week company system program question work government number night point home water "
         "room mother area money story fact month lot right study book eye job word business issue side kind head").split()

#: Dialogues outside these are left out, as in LMDeploy's own scripts.
MIN_TOKENS, MAX_PROMPT, MAX_TOTAL = 4, 1024, 2048


@dataclass
class Request:
    prompt: str
    prompt_tokens: int
    output_tokens: int


class Counter:
    """Counts tokens: with LMDeploy's tokenizer of a checkpoint, or without one as one for each four letters."""

    def __init__(self, tokenizer_path: str | None = None):
        self.exact = tokenizer_path is not None and pathlib.Path(tokenizer_path).exists()
        if self.exact:
            from lmdeploy import Tokenizer
            self._tokenizer = Tokenizer(tokenizer_path)

    def __call__(self, text: str) -> int:
        return len(self._tokenizer.encode(text)) if self.exact else max(len(text) // 4, 1)


def sharegpt(path: str, count: int, counter: Counter, seed: int, output_len: int | None = None) -> list[Request]:
    """The first two turns of dialogues: the prompt, and an answer whose length is asked for."""
    rng = random.Random(seed)
    with open(path, encoding="utf-8") as file:
        dialogues = json.load(file)
    pairs = [(turns[0]["value"], turns[1]["value"]) for dialogue in dialogues
             if len(turns := dialogue.get("conversations") or dialogue.get("conversation") or []) >= 2]
    pre_sample = max(int(count * 1.2), 1000)
    if len(pairs) > pre_sample:
        pairs = rng.sample(pairs, pre_sample)
    requests = [Request(prompt, counter(prompt), output_len or counter(answer)) for prompt, answer in pairs]
    requests = [one for one in requests if one.prompt_tokens >= MIN_TOKENS and one.output_tokens >= MIN_TOKENS and
                one.prompt_tokens <= MAX_PROMPT and one.prompt_tokens + one.output_tokens <= MAX_TOTAL]
    if not requests:
        raise SystemExit(f"{path}: no dialogue has two turns of a usable length")
    return rng.sample(requests, count) if len(requests) > count else requests


def _text(tokens: int, counter: Counter, rng: random.Random) -> str:
    """Words that make about so many tokens."""
    words = [rng.choice(WORDS) for _ in range(tokens)]
    while len(words) > 1 and counter(" ".join(words)) > tokens:
        excess = counter(" ".join(words)) - tokens
        del words[max(len(words) - max(excess // 8, 1), 1):]
    return " ".join(words)


def _of_lengths(pairs: list[tuple[int, int]], counter: Counter, seed: int) -> list[Request]:
    rng = random.Random(seed)
    prompts = [_text(prompt_len, counter, rng) for prompt_len, _ in pairs]
    return [Request(prompt, counter(prompt), output_len)
            for prompt, (_, output_len) in zip(prompts, pairs, strict=True)]


def uniform(count: int, input_len: int, output_len: int, ratio: float, counter: Counter, seed: int) -> list[Request]:
    """Lengths between ``ratio`` of the given ones and those."""
    rng = np.random.default_rng(seed)
    draw: Callable[[int], np.ndarray] = lambda most: rng.integers(max(int(most * ratio), 1), most + 1, count)  # noqa: E731
    return _of_lengths(list(zip(draw(input_len).tolist(), draw(output_len).tolist(), strict=True)), counter, seed)


def lognormal(count: int, input_len: int, output_len: int, counter: Counter, seed: int) -> list[Request]:
    """Lengths as people's: log-normal around the given medians, at most eight times as long."""
    rng = np.random.default_rng(seed)
    pairs = [tuple(int(np.clip(rng.lognormal(np.log(median), 0.7), MIN_TOKENS, 8 * median))
                   for median in (input_len, output_len)) for _ in range(count)]
    return _of_lengths(pairs, counter, seed)
