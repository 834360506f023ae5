"""Printed blocks and CSV files of the benchmarks."""
from __future__ import annotations

import csv
import os

import numpy as np


def percentiles(values: list[float], which: tuple[float, ...] = (0.5, 0.75, 0.95, 0.99)) -> list[float]:
    """Of the sorted values the one at int(p * length)."""
    ordered = sorted(values)
    return [ordered[min(int(p * len(ordered)), len(ordered) - 1)] if ordered else 0.0 for p in which]


def mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def framed(lines: list[str]) -> str:
    """Between rules of 50 hyphens."""
    rule = "-" * 50
    return "\n".join([rule, *lines, rule])


def rates(prompts: int, prompt_tokens: int, completion_tokens: int, seconds: float) -> dict[str, float]:
    return {"rps": prompts / seconds, "rpm": prompts / seconds * 60, "out": completion_tokens / seconds,
            "total": (prompt_tokens + completion_tokens) / seconds}


def rate_lines(prompts: int, prompt_tokens: int, completion_tokens: int, seconds: float) -> list[str]:
    rate = rates(prompts, prompt_tokens, completion_tokens, seconds)
    return [f"number of prompt tokens: {prompt_tokens}", f"number of completion tokens: {completion_tokens}",
            f"token throughput (completion token): {rate['out']:.3f} token/s",
            f"token throughput (prompt + completion token): {rate['total']:.3f} token/s",
            f"RPS (request per second): {rate['rps']:.3f} req/s", f"RPM (request per minute): {rate['rpm']:.3f} req/min"]


def write_csv(path: str, row: dict[str, object], append: bool = False) -> None:
    """A header where the file is new, and the row."""
    new = not append or not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, "a" if append else "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)
