"""Random texts and ids through lmdeploy.Tokenizer and through Hugging Face's `tokenizers`: equal ids, equal texts.

    python tests/python/tokenizer_fuzz.py --strings 100000 --seed 1
    python tests/python/tokenizer_fuzz.py --seconds 600 --seed 1 --tokenizer random
"""
import argparse
import gzip
import json
import math
import os
import pathlib
import pickle
import random
import resource
import signal
import sys
import tempfile
import time

import tokenizers

import tiny
import tokenizer_models
from lmdeploy import Tokenizer, _core
from lmdeploy.errors import LmdeployError
from tokenizer_texts import Texts

os.environ["RUST_BACKTRACE"] = "0"  # what the library prints when it panics
_BATCH = 500
PANIC = "panic"  # nothing to compare with
_DATA = pathlib.Path(__file__).parents[2] / ".." / "shared" / "data" / "tokenizers"


class Pair:
    """One tokenizer.json in both libraries."""

    def __init__(self, name, source):
        self.name, self.source = name, source
        self.reference = tokenizers.Tokenizer.from_str(source)
        self.reference.no_truncation()
        self.reference.no_padding()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(source, encoding="utf-8")
            self.native = Tokenizer(path)
        added = self.reference.get_added_tokens_decoder()
        self.added = [added[token].content for token in sorted(added)]
        self.added_ids = sorted(added)
        self.byte_ids = {}
        for byte, char in enumerate(tiny.byte_spelling()):
            found = [self.reference.token_to_id(spelled) for spelled in (f"<0x{byte:02X}>", char)]
            if found != [None, None]:
                self.byte_ids[byte] = next(token for token in found if token is not None)

    def texts(self, seed):
        rng, size = random.Random(seed), self.native.vocab_size
        spelled = map(self.reference.id_to_token, rng.sample(range(size), min(size, 2000)))
        pieces = [piece for piece in spelled if piece]
        pieces += [piece.replace("\u0120", " ").replace("\u2581", " ").replace("##", "") for piece in pieces]
        return Texts(seed, pieces, self.added)

    def difference_of_text(self, text):
        """What is different for a text, or None."""
        for special in (False, True):
            want = _outcome(lambda special=special: self.reference.encode(text, add_special_tokens=special).ids)
            got = _outcome(lambda special=special: self.native.encode(text, add_special_tokens=special))
            if want not in (got, PANIC):
                return f"encode(add_special_tokens={special})\n  tokenizers {want}\n  lmdeploy   {got}"
        return None

    def difference_of_ids(self, ids):
        for skip in (False, True):
            want = _outcome(lambda skip=skip: self.reference.decode(ids, skip_special_tokens=skip))
            got = _outcome(lambda skip=skip: self.native.decode(ids, skip_special_tokens=skip))
            if want not in (got, PANIC):
                return f"decode(skip_special_tokens={skip})\n  tokenizers {want!r}\n  lmdeploy   {got!r}"
            streamed = "".join(self.stream(ids, skip))
            if streamed != got:
                return f"stream(skip_special_tokens={skip})\n  decode {got!r}\n  stream {streamed!r}"
        return None

    def stream(self, ids, skip):
        stream = _core.Detokenizer(self.native._native, skip)
        return [*(stream.push([token]) for token in ids), stream.finish()]

    def check_texts(self, texts, specials=(False, True)):
        """(differences, ids of the texts)."""
        found, all_ids = [], []
        for special in specials:
            wanted = _outcomes(lambda batch, s=special: self.reference.encode_batch_fast(
                batch, add_special_tokens=s), texts)
            for text, want in zip(texts, wanted, strict=True):
                got = _outcome(lambda text=text, s=special: self.native.encode(text, add_special_tokens=s))
                if want == PANIC or (None if want is None else want.ids) == got:
                    all_ids.append(got or [])
                else:
                    found.append(text)
        return found, all_ids

    def check_ids(self, all_ids):
        found = []
        for skip in (False, True):
            wanted = _outcomes(lambda batch, s=skip: self.reference.decode_batch(batch, skip_special_tokens=s), all_ids)
            for ids, want in zip(all_ids, wanted, strict=True):
                got = self.native.decode(ids, skip_special_tokens=skip)
                if want not in (got, PANIC) or "".join(self.stream(ids, skip)) != got:
                    found.append(ids)
        return found

    def difference(self, sample):
        """What is different for a text, or for a list of ids; None: nothing."""
        return self.difference_of_text(sample) if isinstance(sample, str) else self.difference_of_ids(sample)

    def find(self, seed, strings, seconds=math.inf, max_differences=3):
        """(number of texts, texts and ids with a difference, shrunk)."""
        texts, count, found = self.texts(seed), 0, []
        end = time.monotonic() + seconds
        vocab_size = self.native.vocab_size
        while count < strings and time.monotonic() < end and len(found) < max_differences:
            batch = [texts.text() for _ in range(min(_BATCH, strings - count))]
            count += len(batch)
            bad_texts, ids = self.check_texts(batch)
            random_ids = [texts.ids(vocab_size, self.added_ids, self.byte_ids) for _ in batch]
            bad_ids = self.check_ids(ids[:len(batch)] + random_ids)
            for sample in [*bad_texts[:max_differences], *bad_ids[:max_differences]]:
                shrunk = shrink(sample, self.difference)
                if shrunk not in found:
                    found.append(shrunk)
        return count, found[:max_differences]

    def report(self, sample):
        shown = ascii(sample) if isinstance(
            sample, str) else f"{sample} {[self.native._native.token_text(i) for i in sample]}"
        return f"{self.name}: {shown}: {self.difference(sample)}"


def _outcome(run):
    """The result; None where there is an error; PANIC where the library, written in Rust, breaks down."""
    try:
        return run()
    except Exception:
        return None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return PANIC


def _outcomes(run, batch):
    results = _outcome(lambda: run(batch))
    if results not in (None, PANIC):
        return results
    one_by_one = [_outcome(lambda one=one: run([one])) for one in batch]
    return [result if result in (None, PANIC) else result[0] for result in one_by_one]


def shrink(sample, difference):
    """A shorter text (or list of ids) that still differs."""
    size = len(sample) // 2
    while size > 0:
        for begin in range(0, len(sample), size):
            shorter = sample[:begin] + sample[begin + size:]
            if difference(shorter):
                sample = shorter
                break
        else:
            size //= 2
    return sample


def shrink_config(config, still_differs):
    """A smaller tokenizer.json: parts and list entries are left out one after another."""
    def paths(value, path=()):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in items:
            yield (*path, key)
            yield from paths(child, (*path, key))

    def without(path):
        copy = json.loads(json.dumps(config))
        parent = copy
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, list):
            del parent[path[-1]]
        elif parent[path[-1]] in (None, False) or path[0] == "model" or path[-1] in ("type", "id", "content"):
            return None
        else:
            parent[path[-1]] = None
        return copy

    progress = True
    while progress:
        progress = False
        for path in sorted(paths(config), key=len):
            try:
                smaller = without(path)
            except (KeyError, IndexError, TypeError):
                continue
            if smaller is not None and still_differs(smaller):
                config, progress = smaller, True
                break
    return config


def data_tokenizers():
    """Names of the reference data's tokenizers; none where it is not there."""
    return sorted(path.parent.name for path in _DATA.glob("*/tokenizer.json.gz"))


def load(name):
    if name in tokenizer_models.SMALL:
        return Pair(name, tokenizer_models.small_tokenizer(name))
    return Pair(name, gzip.decompress((_DATA / name / "tokenizer.json.gz").read_bytes()).decode())


def sweep(component, step=1):
    """Differences in what a component of tokenizer.json makes of each code point; beyond 8191, of each `step`-th."""
    pair = Pair(json.dumps(component), tokenizer_models.showing(component))
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000 and (code < 0x2000 or code % step == 0)]
    texts = ["".join(f"a{chr(code)}b {chr(code)}1" for code in codes[i:i + 64]) for i in range(0, len(codes), 64)]
    found = []
    for begin in range(0, len(texts), _BATCH):
        bad, _ = pair.check_texts(texts[begin:begin + _BATCH], (False,))
        found += [pair.report(shrink(text, pair.difference)) for text in bad]
    return found


def in_child(run, seconds):
    """run()'s value from a process of its own; PANIC where it dies (the library may abort) or takes longer."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(math.ceil(seconds))
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a panic prints
            with os.fdopen(writer, "wb") as out:
                pickle.dump(run(), out)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as source:
        written = source.read()
    os.waitpid(pid, 0)
    return pickle.loads(written) if written.endswith(b".") else PANIC


def run_random(seed, tokenizers_wanted=math.inf, seconds=math.inf, strings=60, max_differences=10):
    """Random tokenizers; (number of tokenizers, number of texts, differences)."""
    found, count, texts = [], 0, 0
    end = time.monotonic() + seconds
    while count < tokenizers_wanted and time.monotonic() < end and len(found) < max_differences:
        seeds = [f"{seed}.{n}" for n in range(count, min(count + 20, tokenizers_wanted))]
        count += len(seeds)
        for number, differences in _run_seeds(seeds, strings):
            texts += number
            found += differences
    return count, texts, found[:max_differences]


def _has_empty_token(reference, config):
    """Whether normalization leaves nothing of an added token, which the library then finds everywhere."""
    return reference.normalizer is not None and any(
        token["normalized"] and not reference.normalizer.normalize_str(token["content"])
        for token in config["added_tokens"])


def _run_seeds(seeds, strings):
    """What _run_seed gives for each; one by one where the library breaks down on the way."""
    results = in_child(lambda: [_run_seed(seed, strings) for seed in seeds], 5 * len(seeds))
    if results != PANIC:
        return results
    if len(seeds) > 1:
        return [result for seed in seeds for result in _run_seeds([seed], strings)]
    if in_child(lambda: _run_native(seeds[0], strings), 5) == PANIC:
        return [(0, [f"random {seeds[0]}: lmdeploy breaks down or takes more than 5 s"])]
    return [(0, [])]


def _load(name, config):
    """A Pair; None where the reference refuses it; text where only lmdeploy does."""
    source = json.dumps(config)
    reference = _outcome(lambda: tokenizers.Tokenizer.from_str(source))
    if reference in (None, PANIC) or _has_empty_token(reference, config):
        return None
    try:
        return Pair(name, source)
    except LmdeployError as error:
        return f"lmdeploy refuses it: {error}"


def _run_native(seed, strings):
    pair = _load("", tokenizer_models.random_config(seed))
    if isinstance(pair, Pair):
        texts = pair.texts(seed)
        for _ in range(strings):
            _outcome(lambda: pair.native.decode(pair.native.encode(texts.text())))


def _run_seed(seed, strings):
    """(number of texts, differences) of the random tokenizer of that seed."""
    config = tokenizer_models.random_config(seed)
    pair = _load(f"random {seed}", config)
    if pair is None:
        return 0, []
    if isinstance(pair, str):
        smaller = shrink_config(config, lambda c: isinstance(_load("", c), str))
        return 0, [f"random {seed}: {pair}\n  {json.dumps(smaller)}"]
    number, samples = pair.find(seed, strings, max_differences=1)

    def still_differs(candidate):
        loaded = _load("", candidate)
        return isinstance(loaded, Pair) and loaded.difference(samples[0]) is not None

    found = []
    for sample in samples:
        smaller = shrink_config(config, still_differs)
        found.append(f"{_load(pair.name, smaller).report(sample)}\n  {json.dumps(smaller)}")
    return number, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each tokenizer")
    parser.add_argument("--strings", type=int, default=2000, help="for each tokenizer")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--tokenizer", help="only those whose name contains this; 'random' for random ones, "
                        "'characters' for every character through each component")
    parser.add_argument("--max-differences", type=int, default=10)
    options = parser.parse_args()
    total = 0
    if not data_tokenizers():
        print("the tokenizers of the reference data are not there: left out")
    for name in [*tokenizer_models.SMALL, *data_tokenizers()]:
        if options.tokenizer and options.tokenizer not in name:
            continue
        began = time.monotonic()
        pair = load(name)
        count, found = pair.find(f"{options.seed}.{name}", options.strings, options.seconds, options.max_differences)
        print(
            *map(pair.report, found),
            f"{name}: {count} texts, {len(found)} differences, {time.monotonic() - began:.1f} s", sep="\n", flush=True)
        total += len(found)
    if not options.tokenizer or options.tokenizer == "characters":
        found = [text for component in tokenizer_models.CHARACTER_COMPONENTS for text in sweep(component)]
        print(
            *found,
            f"{len(tokenizer_models.CHARACTER_COMPONENTS)} components on all characters, {len(found)} differences",
            sep="\n")
        total += len(found)
    if not options.tokenizer or options.tokenizer == "random":
        count, texts, found = run_random(options.seed, options.strings // 20, options.seconds,
                                         max_differences=options.max_differences)
        print(*found, f"{count} random tokenizers, {texts} texts, {len(found)} differences", sep="\n")
        total += len(found)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
