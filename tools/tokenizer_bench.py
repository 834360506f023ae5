#!/usr/bin/env python3
"""Encoding and decoding speed beside the `tokenizers` library, loading, and texts that provoke slowness.

    tokenizer_bench.py [TOKENIZER ...] [--rounds 5] [--text FILE ...] [--only speed,load,lines]

TOKENIZER: a tokenizer.json, a tokenizer.json.gz or a folder with one; by default the demo model's, written as a
tokenizer.json. Each round times both libraries on one text that neither has seen, one after the other, on one
thread; tables show medians of processor time. Both sides give Python lists of ids and Python strings.
"""
from __future__ import annotations

import argparse
import functools
import gzip
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
import tokenizers  # noqa: E402  (reads its environment)

import lmdeploy  # noqa: E402

DEMO_MODEL = Path(__file__).parent.parent / "models/SmolLM2-135M-Instruct-Q4_1.gguf"
MEGABYTE = 1_000_000
GPT2_WORDS = [{"type": "Digits", "individual_digits": True},
              {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]

COMMON = """the of and to a in is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said what its
about than into them can only other time new some could these two may first then do any like my now over such our man
me even most made after also did many must before back see through way where get much go well your know should down
work year because come people just say each those take day good how long little own life great still us here world
three between never another while last might old same too house does against right take part hand place such again few
case most week number point home water room area money story fact month lot study book eye job word business issue
side kind head service friend father power hour game line end among ever stand bad lose however member pay law meet car
city almost include continue set later community name once white least president learn real change team minute best
several idea kid body information nothing ago lead social understand whether watch together follow around parent stop
face anything create public already speak others read level allow add office spend door health person art sure war
history party within grow result open morning walk reason low win research girl guy early food moment himself air
teacher force offer""".split()
SYLLABLES = """an ar be ber bo ca cen co com con cu da de der di do ef el en er es ex fa fer fi for ga ge gra gu ha he
ho hu im in inter is ju ka la le li lo lu ma men mi mo mul na ne ni no nu ob on or pa per pi pla po pre pro qua ra re
ri ro ru sa se si so sta sti sub sul ta te ter ti to tra tri tu un va ver vi vo wa wi""".split()
ENDINGS = "s ed ing er ly ness tion ment able al ity ous ive est ism ist ance 's".split()


@functools.cache
def zipf(count: int) -> list[float]:
    """Summed weights: the k-th word once for every k times of the first."""
    return list(itertools.accumulate(1 / (rank + 2.7) for rank in range(count)))


def long_tail(words: list[str], rng: random.Random, count: int) -> list[str]:
    return rng.choices(words, cum_weights=zipf(len(words)), k=count)


@functools.cache
def english_words() -> list[str]:
    rng = random.Random(1)
    made = {"".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3, 3, 4)))) + rng.choice(["", *ENDINGS])
            for _ in range(40_000)}
    return COMMON + sorted(made, key=lambda word: (len(word), word))


def english(size: int, seed: int) -> str:
    words, rng = english_words(), random.Random(seed)
    out, length = [], 0
    while length < size:
        sentence = long_tail(words, rng, rng.randint(4, 25))
        sentence[0] = sentence[0].capitalize()
        for i in range(len(sentence) - 1):
            draw = rng.random()
            if draw < 0.06:
                sentence[i] += ","
            elif draw < 0.08:
                sentence[i] = str(rng.randint(0, 3000))
            elif draw < 0.10:
                sentence[i] = f'"{sentence[i]}"'
        out.append(" ".join(sentence) + rng.choice((". ", ". ", ".\n", ".\n\n", "? ", "; ")))
        length += len(out[-1])
    return "".join(out)[:size]


def code(size: int, seed: int) -> str:
    """Python's own library, its files in random order."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    random.Random(seed).shuffle(files)
    text = ""
    while len(text) < size:
        for file in files:
            text += file.read_text(encoding="utf-8", errors="replace")
            if len(text) >= size:
                break
    return text[:size]


@functools.cache
def chinese_words() -> list[str]:
    rng = random.Random(1)
    everyday = [bytes((high, low)).decode("gb2312") for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF)]
    rng.shuffle(everyday)
    words = ["的", "一", "是", "了", "我", "不", "在", "人", "有", "这", *everyday]
    return words + ["".join(long_tail(everyday, rng, rng.choice((2, 2, 2, 3, 4)))) for _ in range(30_000)]


def chinese(size: int, seed: int) -> str:
    words, rng = chinese_words(), random.Random(seed)
    out, length = [], 0
    while length < size:
        out.append("".join(long_tail(words, rng, rng.randint(2, 10))) + rng.choice("，，，。。、？\n"))
        length += 3 * len(out[-1])
    return "".join(out)


def mixed(size: int, seed: int) -> str:
    rng = random.Random(seed)
    cyrillic, arabic = range(0x430, 0x450), range(0x627, 0x64B)
    makers = [lambda: english(600, rng.random()), lambda: chinese(300, rng.random()),
              lambda: "".join(chr(rng.choice(cyrillic if rng.random() < 0.8 else (32,))) for _ in range(150)),
              lambda: "".join(chr(rng.choice(arabic if rng.random() < 0.8 else (32,))) for _ in range(100)),
              lambda: "".join(chr(rng.randrange(0x1F300, 0x1F600)) for _ in range(10)),
              lambda: json.dumps({f"key_{rng.randrange(999)}": rng.random() for _ in range(8)}) + "\n",
              lambda: f"Ça coûte {rng.randrange(99)},50 €, très près d'où naïve Zoë a reçu l'œuvre — déjà vu.\n"]
    snippets = [code(20_000, rng.random()) for _ in range(2)]
    makers.append(lambda: rng.choice(snippets)[rng.randrange(19_000):][:500])
    pool = [rng.choice(makers)() for _ in range(size // 900)]
    return "\n".join(rng.choices(pool, k=size // 300))


def bytes_of(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def repeated(unit: str):
    return lambda size, rng: unit * (size // len(unit.encode()) + 1)


def drawn(alphabet: str):
    return lambda size, rng: "".join(rng.choices(alphabet, k=size // min(len(c.encode()) for c in alphabet) + 1))


TEXTS = {"english": english, "code": code, "chinese": chinese, "mixed": mixed}
ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyz"
LINES = {
    "a": repeated("a"), "ab": repeated("ab"), "letters": drawn(ASCII_LETTERS),
    "capitals": drawn(ASCII_LETTERS + ASCII_LETTERS.upper()), "cjk": drawn("".join(map(chr, range(0x4E00, 0x9FA6)))),
    "digits": drawn("0123456789"), "zeros": repeated("0"), "punctuation": drawn("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "emoji": drawn("".join(map(chr, range(0x1F300, 0x1F600)))),
    "base64": drawn(ASCII_LETTERS + ASCII_LETTERS.upper() + "0123456789+/"),
    "spaces": repeated(" "), "newlines": repeated("\n"), "space, newline": repeated(" \n"),
    "underscores": repeated("_"), "apostrophes": repeated("'"), "special, cut": repeated("<|"),
    "one mark": repeated("\u0301"), "marks": drawn("\u0300\u0316\u0301\u0323"), "nul": repeated("\0"),
}


def processor_time(run, *args) -> float:
    start = time.process_time()
    run(*args)
    return time.process_time() - start


class Pair:
    """One tokenizer.json in both libraries."""

    def __init__(self, path: Path):
        self.ours = lmdeploy.Tokenizer(path)
        self.theirs = tokenizers.Tokenizer.from_file(str(path))

    def encoders(self):
        return self.ours.encode, lambda text: self.theirs.encode(text).ids

    def decoders(self):
        return self.ours.decode, self.theirs.decode


def time_pieces(run, pieces: list) -> float:
    def all_of_them():
        for piece in pieces:
            run(piece)

    return processor_time(all_of_them)


def measure_speed(pair: Pair, texts: list[str], piece_bytes: int) -> list[float]:
    """MB/s: our encode, theirs, our decode, theirs."""
    rounds: list[list[float]] = []
    for text in texts:
        step = max(1, len(text) * piece_bytes // len(text.encode()))
        pieces = [text[i:i + step] for i in range(0, len(text), step)]
        megabytes = len(text.encode()) / MEGABYTE
        encoded = [megabytes / time_pieces(run, pieces) for run in pair.encoders()]
        rows = [pair.ours.encode(piece) for piece in pieces]  # only now: it fills our cache of words
        rounds.append(encoded + [megabytes / time_pieces(run, rows) for run in pair.decoders()])
    return [statistics.median(column) for column in zip(*rounds)]


def print_speed(name: str, pair: Pair, rounds: int, files: list[Path]) -> None:
    for kind, make in TEXTS.items() if not files else [(file.name, None) for file in files]:
        for label, size in (("1 kB", 1000), ("1 MB", MEGABYTE)):
            total = max(size, 250_000)
            if make is None:
                whole = next(file for file in files if file.name == kind).read_text(encoding="utf-8")
                texts = [whole] * rounds
            else:
                texts = [bytes_of(make(total, seed), total) for seed in range(rounds)]
            ours_e, theirs_e, ours_d, theirs_d = measure_speed(pair, texts, size)
            print(f"| {name} | {kind} | {label} | {ours_e:.1f} | {theirs_e:.2f} | {ours_e / theirs_e:.1f} × |"
                  f" {ours_d:.0f} | {theirs_d:.1f} | {ours_d / theirs_d:.1f} × |", flush=True)


MEMORY_PROBE = """
import sys, lmdeploy, tokenizers
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024
before = resident()
kept = lmdeploy.Tokenizer(sys.argv[2]) if sys.argv[1] == "ours" else tokenizers.Tokenizer.from_file(sys.argv[2])
print(resident() - before)
"""


def resident_mb(which: str, path: Path) -> float:
    return float(subprocess.run([sys.executable, "-c", MEMORY_PROBE, which, str(path)], check=True,
                                capture_output=True, text=True).stdout)


def print_load(name: str, path: Path, rounds: int) -> None:
    loaders = (lmdeploy.Tokenizer, lambda p: tokenizers.Tokenizer.from_file(str(p)))
    times = [[1000 * processor_time(load, path) for load in loaders] for _ in range(rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*times))
    print(f"| {name} | {path.stat().st_size / MEGABYTE:.1f} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} × |"
          f" {resident_mb('ours', path):.0f} | {resident_mb('theirs', path):.0f} |", flush=True)


def print_lines(name: str, pair: Pair, rounds: int) -> None:
    for kind, make in LINES.items():
        sizes = (MEGABYTE // 4, MEGABYTE)
        times = [[processor_time(pair.ours.encode, bytes_of(make(size, random.Random(seed)), size))
                  for size in sizes] for seed in range(rounds)]
        quarter, whole = (1000 * statistics.median(column) for column in zip(*times))
        print(f"| {name} | {kind} | {quarter:.1f} | {whole:.1f} | {whole / quarter:.1f} |", flush=True)


def demo_tokenizer() -> dict:
    """The tokenizer of the demo model in the form that both libraries read."""
    import gguf

    fields = gguf.GGUFReader(DEMO_MODEL).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    special = gguf.TokenType.CONTROL
    added = [{"id": token, "content": text, "special": True, "normalized": False, "single_word": False,
              "lstrip": False, "rstrip": False}
             for token, (text, kind) in enumerate(zip(tokens, types)) if kind == special]
    merges = fields["tokenizer.ggml.merges"].contents()
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": GPT2_WORDS},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": {text: token for token, text in enumerate(tokens)},
                      "merges": merges}}


def unpack(tokenizer: Path, folder: Path) -> tuple[str, Path]:
    """A name and a tokenizer.json that is a plain file."""
    if tokenizer.is_dir():
        plain = tokenizer / "tokenizer.json"
        tokenizer = plain if plain.exists() else tokenizer / "tokenizer.json.gz"
    name = tokenizer.parent.name
    if tokenizer.suffix != ".gz":
        return name, tokenizer
    unpacked = folder / f"{name}.json"
    unpacked.write_bytes(gzip.decompress(tokenizer.read_bytes()))
    return name, unpacked


def collect(given: list[Path], folder: Path) -> list[tuple[str, Path]]:
    if given:
        return [unpack(tokenizer, folder) for tokenizer in given]
    demo = folder / "smollm2.json"
    demo.write_text(json.dumps(demo_tokenizer()), encoding="utf-8")
    return [("smollm2", demo)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="files to measure instead of made texts")
    parser.add_argument("--only", default="speed,load,lines")
    args = parser.parse_args()
    parts = args.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        found = collect(args.tokenizer, Path(folder))
        if "speed" in parts:
            print(f"MB/s of UTF-8, processor time, medians of {args.rounds} rounds; tokenizers {tokenizers.__version__}\n")
            print("| tokenizer | text | size | encode | `tokenizers` | ratio | decode | `tokenizers` | ratio |")
            print("|---|---|---|---|---|---|---|---|---|")
            for name, path in found:
                print_speed(name, Pair(path), args.rounds, args.text)
        if "load" in parts:
            print("\nLoading: milliseconds and resident megabytes\n")
            print("| tokenizer | MB | load | `tokenizers` | ratio | resident | `tokenizers` |")
            print("|---|---|---|---|---|---|---|")
            for name, path in found:
                print_load(name, path, args.rounds)
        if "lines" in parts:
            print("\nOne line without words: milliseconds; 4 is linear\n")
            print("| tokenizer | text | 0.25 MB | 1 MB | ratio |")
            print("|---|---|---|---|---|")
            for name, path in found:
                print_lines(name, Pair(path), args.rounds)


if __name__ == "__main__":
    main()
