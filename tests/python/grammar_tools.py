"""What the tests and the benchmark of structured output share: vocabularies, and answers drawn from random logits."""
from __future__ import annotations

import contextlib
import gzip
import json
import pathlib
import random
import shutil

import jsonschema
import numpy as np
from json_documents import Documents, Impossible

import lmdeploy._core as core

DATA = pathlib.Path(__file__).parent.parent / "data" / "grammar"
SHARED = pathlib.Path(__file__).parent.parent.parent.parent / "shared" / "data" / "tokenizers"


def schemas() -> dict[str, object]:
    lines = (DATA / "schemas.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["name"]: entry["schema"] for entry in map(json.loads, lines)}


def schema_format(schema: object, **more) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "test", "schema": schema}, **more}


def validator(schema: object) -> jsonschema.protocols.Validator:
    """As the schema was meant: `nullable` is OpenAPI's, lists of items are draft 7's."""
    if isinstance(schema, dict) and schema.get("nullable"):
        schema = schema | {"type": [schema["type"], "null"]}
    old = "additionalItems" in json.dumps(schema)
    kind = jsonschema.Draft7Validator if old else jsonschema.Draft202012Validator
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def documents(schema: object, count: int) -> list[object]:
    """Documents that the jsonschema library finds valid; fewer than `count` where the generator fails."""
    check = validator(schema)
    found = []
    for seed in range(count):
        with contextlib.suppress(Impossible):
            found.append(Documents(schema, seed).make())
    return [value for value in found if check.is_valid(value)]


def small_vocabulary() -> list[bytes]:
    """All bytes, and pieces that end and begin in the middle of JSON."""
    rng = random.Random(3)
    text = json.dumps(schemas(), ensure_ascii=False, indent=2).encode()
    pieces = set()
    while len(pieces) < 2500:
        begin = rng.randrange(len(text))
        pieces.add(text[begin:begin + rng.randint(2, 6)])
    return [bytes([byte]) for byte in range(256)] + [b""] + sorted(pieces)


def tokenizer_names() -> list[str]:
    return sorted(path.name for path in SHARED.iterdir() if path.is_dir()) if SHARED.is_dir() else []


def load_tokenizer(name: str, folder: pathlib.Path) -> core.Tokenizer:
    """A tokenizer of the shared data; unpacked into `folder`."""
    for packed in (SHARED / name).iterdir():
        target = folder / packed.name.removesuffix(".gz")
        if packed.suffix == ".gz":
            with gzip.open(packed, "rb") as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out)
        else:
            shutil.copy(packed, target)
    files = [file for pattern in ("*.model", "*.tiktoken", "*.gguf") for file in sorted(folder.glob(pattern))]
    return core.Tokenizer.load(folder if (folder / "tokenizer.json").exists() else files[0])


class Sampler:
    """Draws answers at a temperature from logits that are random at every step."""

    def __init__(self, tokens: list[bytes], seed: int, temperature: float = 2.0, patience: int = 60,
                 ending: bytes = b"") -> None:
        self.tokens = tokens
        self.rng = np.random.default_rng(seed)
        self.temperature = temperature
        self.patience = patience  # tokens after which the answer is led towards its end
        self.ending = ending  # what ends an answer that chance would not end
        self.mask = np.zeros((len(tokens) + 31) // 32, np.uint32)
        closing = {byte: rank for rank, byte in enumerate(b'"]}')}
        last = {ord(" "): 40, ord("\n"): 40, ord("\t"): 40, ord("{"): 50, ord("["): 50, ord(","): 30, ord("\\"): 30}
        self.rank = np.array([closing.get(token[0], last.get(token[0], 10)) + len(token) if token else 99
                              for token in tokens])

    def allowed(self, matcher: core.Matcher) -> np.ndarray:
        matcher.fill_mask(self.mask)
        bits = np.unpackbits(self.mask.view(np.uint8), bitorder="little")[:len(self.tokens)]
        return np.flatnonzero(bits)

    def draw(self, ids: np.ndarray) -> int:
        logits = self.rng.normal(0, 4, len(ids)) / self.temperature
        weights = np.exp(logits - logits.max())
        return int(self.rng.choice(ids, p=weights / weights.sum()))

    def answer(self, matcher: core.Matcher, most: int = 20000) -> bytes:
        out = b""
        for step in range(most):
            if matcher.is_complete():
                return out
            ids = self.allowed(matcher)
            stops = matcher.can_stop() and (len(ids) == 0 or step > self.patience or self.rng.random() < 0.1)
            if stops:
                return out
            assert len(ids), f"a dead end after {out!r}"
            if step > self.patience and self.ending and matcher.copy().accept_bytes(self.ending):
                return out + self.ending
            if step > self.patience:
                best = self.rank[ids]
                ids = ids[best == best.min()]
            token = self.draw(ids)
            assert matcher.accept(token)
            out += self.tokens[token]
        raise AssertionError(f"no end: {out[:300]!r}")
