"""Tokenizers to test with: small ones of every kind, and random ones."""
import functools
import json
import pathlib
import random

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import tiny
import tokenizer_texts


@functools.cache
def _corpus():
    english = (pathlib.Path(__file__).parents[1] / "data" / "reference" / "english.txt").read_text(encoding="utf-8")
    texts = tokenizer_texts.Texts("corpus")
    return [*english.splitlines(), *(texts.text() for _ in range(2000)), *(texts.word() for _ in range(2000))]


def _split(regex, behavior="isolated"):
    return pre_tokenizers.Split(tokenizers.Regex(regex), behavior)


_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")
_O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
          r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_SPECIAL = ["<unk>", "<s>", "</s>", "<|im_end|>"]


def _byte_level(*steps, normalizer=None):
    """GPT-2, Llama 3, GPT-4o, Qwen and their like."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not steps)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(vocab_size=1500, special_tokens=_SPECIAL, show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def _byte_fallback():
    """Llama 2, Gemma."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = _split(r"\u2581+", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer, trainers.BpeTrainer(vocab_size=1500, special_tokens=_SPECIAL + _BYTES, show_progress=False)


def _word_suffix():
    """CLIP."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "),
                                                 normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([_split(r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer, trainers.BpeTrainer(
        vocab_size=1500, special_tokens=_SPECIAL, end_of_word_suffix="</w>", show_progress=False)


def _unigram(steps, byte_fallback):
    """T5, XLM-R, ALBERT."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]
                                          ) if byte_fallback else decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=8000, special_tokens=_SPECIAL +(_BYTES if byte_fallback else[]),
        unk_token="<unk>", show_progress=False)


def _word_piece():
    """BERT."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=_SPECIAL, show_progress=False)


def _word_level():
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    return tokenizer, trainers.WordLevelTrainer(vocab_size=3000, special_tokens=_SPECIAL, show_progress=False)


def _trained(tokenizer, trainer):
    """The text of its tokenizer.json: <s> goes in front, some added tokens have flags, bytes are no added tokens."""
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", lstrip=True), tokenizers.AddedToken(
        "Word", single_word=True, rstrip=True), tokenizers.AddedToken("  ", normalized=False)])
    config = json.loads(tokenizer.to_str())
    config["added_tokens"] = [token for token in config["added_tokens"] if token["content"] not in _BYTES]
    if _BYTES[0] in dict(config["model"]["vocab"]):
        config["model"]["byte_fallback"] = True
    return json.dumps(config)


_DIGITS = pre_tokenizers.Digits(individual_digits=True)
_SMALL = {
    "small_gpt2": _byte_level,
    "small_llama3": lambda: _byte_level(_split(_LLAMA3)),
    "small_o200k": lambda: _byte_level(_split(_O200K)),
    "small_qwen": lambda: _byte_level(_split(_LLAMA3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
    "small_deepseek": lambda: _byte_level(_split(r"\p{N}{1,3}"), _split(r"[一-龥぀-ゟ゠-ヿ]+"), _split(_LLAMA3)),
    "small_smollm": lambda: _byte_level(_DIGITS, _split(_LLAMA3), normalizer=normalizers.NFKC()),
    "small_llama2": _byte_fallback,
    "small_clip": _word_suffix,
    "small_t5": lambda: _unigram([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")], False),
    "small_xlmr": lambda: _unigram([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()], True),
    "small_bert": _word_piece,
    "small_words": _word_level,
}
#: Names of small tokenizers of every kind of model.
SMALL = list(_SMALL)


def small_tokenizer(name):
    """The text of its tokenizer.json; trained on the spot."""
    return _trained(*_SMALL[name]())


def _split_config(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


#: Components that ask what a single character is.
CHARACTER_COMPONENTS = [
    *({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Whitespace",
                                  "WhitespaceSplit",
                                  "BertPreTokenizer", "UnicodeScripts")),
    *({"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
       "lowercase": False,
       option: True} for option in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")),
    {"type": "Digits", "individual_digits": True},
    {"type": "Punctuation", "behavior": "Isolated"},
    *map(_split_config,
         (r"\s", r"\w", r"\d", r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}",
                         r"\p{P}", r"\p{S}", r"\p{Han}", r"(?i:'s)", r"[[:punct:]]", _LLAMA3, _O200K)),
]
_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer")


def showing(component):
    """A tokenizer.json whose ids show what the component makes of a text: its bytes, each word after a space."""
    spell = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
    is_normalizer = component["type"] in _NORMALIZERS
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": component if is_normalizer else None,
        "pre_tokenizer": spell if is_normalizer else {"type": "Sequence", "pretokenizers": [component, spell]},
        "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "merges": [],
                  "vocab": {char: byte for byte, char in enumerate(tiny.byte_spelling())}}})


_CHARS = [*"abcdefghijklmnopqrstuvwxyzABCSTE0123456789 .,'-_!|", "\u2581", "\u0120", "é", "ß", "İ", "\u0301",
    "\u0323", "中", "文", "か", "\u3099", "ـ", "ﬁ", "½", "\U0001F600", "\u200d", "\u00a0", "\n", "한", "ᄒ"]
_UNITS = ["a", "b", "ab", "c", "he", "l", "o", "s", "t", "e", "x",
    "1", "2", " ", "\u2581", "'", ".", "-", "é", "中", "A", "S"]
_CONTENTS = [
    "<s>", "</s>", "<unk>", "<pad>", "<|im_end|>", "ab", "a", "aa", " a", "a ", "  ", "the", "THE", "Éa", "e\u0301",
    "\n", "\n\n", "<s", "s>", "中", "12", "_x", "\u2581", "\u2581a", "ﬁ", "İ", "#", "##a", "'s", "\u0120a", "a</w>",
    "\U0001F600", "<0x41>"]


class _Random:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def flip(self, chance=0.5):
        return self.rng.random() < chance

    def one(self, *choices):
        return self.rng.choice(choices)

    def some(self, make, most):
        return [make() for _ in range(self.rng.randint(0, most))]

    # Normalizers

    def pattern(self):
        return self.one({"String": self.one(*_UNITS)}, {"String": self.one(*_UNITS)}, {"Regex": self.regex()})

    def regex(self):
        return self.one(
            r"\s+", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]+", r" ?\p{L}+", r"\w+|[^\w\s]+", r"(?i:'s|'t|'re)", r"\s+(?!\S)",
            r"a|b", r"[aeiou]+", r"\p{Han}+", r"[\r\n]", r" {2,}", r"\d", r".", r"$", r"^", r"a*", r"(?=\p{Lu})", r"\b",
            r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"\p{M}", r"[[:punct:]]+", r"[^[:space:]]+", r"\p{P}|\p{S}", r"(?<=a)b",
            r"[一-龥]+", r"\W", r"[\p{L}&&[^\p{Han}]]+", r"\R", r"(a)\1", r"\h+", r"(?<!\S)\d+", r"\A.", r".\z")

    def normalizer(self, depth=0):
        kind = self.one("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                        "Strip", "Prepend", "Replace", "ByteLevel", "BertNormalizer", "Sequence")
        if kind == "Sequence":
            return {"type": kind, "normalizers": self.some(lambda: self.normalizer(depth + 1), 3 if depth < 2 else 0)}
        if kind == "Strip":
            return {"type": kind, "strip_left": self.flip(), "strip_right": self.flip()}
        if kind == "Prepend":
            return {"type": kind, "prepend": self.one("\u2581", " ", "x", "ab")}
        if kind == "Replace":
            return {"type": kind, "pattern": self.pattern(), "content": self.one("", " ", "\u2581", "x", "aa", "é")}
        if kind == "BertNormalizer":
            return {"type": kind, "clean_text": self.flip(), "handle_chinese_chars": self.flip(),
                    "strip_accents": self.one(None, True, False), "lowercase": self.flip()}
        return {"type": kind}

    # Pre-tokenizers

    def behavior(self):
        return self.one("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

    def metaspace(self):
        return {"type": "Metaspace", "replacement": self.one("\u2581", "\u2581", "_", "x"),
                "prepend_scheme": self.one("always", "first", "never"), "split": self.flip(0.7)}

    def byte_level(self):
        return {"type": "ByteLevel", "add_prefix_space": self.flip(), "trim_offsets": self.flip(),
                "use_regex": self.flip(0.7)}

    def pre_tokenizer(self, depth=0):
        kind = self.one(
            "ByteLevel", "Split", "Split", "Split", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit",
            "Punctuation", "BertPreTokenizer", "CharDelimiterSplit", "FixedLength", "UnicodeScripts", "Sequence",
            "Sequence")
        if kind == "Sequence":
            return {"type": kind,
                    "pretokenizers": self.some(lambda: self.pre_tokenizer(depth + 1), 3 if depth < 2 else 0)}
        if kind == "ByteLevel":
            return self.byte_level()
        if kind == "Metaspace":
            return self.metaspace()
        if kind == "Split":
            return {"type": kind, "pattern": self.pattern(), "behavior": self.behavior(), "invert": self.flip(0.2)}
        if kind == "Digits":
            return {"type": kind, "individual_digits": self.flip()}
        if kind == "Punctuation":
            return {"type": kind, "behavior": self.behavior()}
        if kind == "CharDelimiterSplit":
            return {"type": kind, "delimiter": self.one(" ", "a", "-", "é", "中")}
        if kind == "FixedLength":
            return {"type": kind, "length": self.rng.randint(1, 6)}
        return {"type": kind}

    # Decoders

    def decoder(self, depth=0):
        kind = self.one("ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace",
                        "BPEDecoder", "WordPiece", "CTC", "Sequence", "Sequence")
        if kind == "Sequence":
            return {"type": kind, "decoders": self.some(lambda: self.decoder(depth + 1), 4 if depth < 2 else 0)}
        if kind == "ByteLevel":
            return self.byte_level()
        if kind == "Metaspace":
            return self.metaspace()
        if kind == "Replace":
            return {"type": kind, "pattern": self.pattern(), "content": self.one("", " ", "x", "ab")}
        if kind == "Strip":
            return {"type": kind, "content": self.one(" ", "a", "\u2581", "é"), "start": self.rng.randint(0, 2),
                    "stop": self.rng.randint(0, 2)}
        if kind == "BPEDecoder":
            return {"type": kind, "suffix": self.one("</w>", "a")}
        if kind == "WordPiece":
            return {"type": kind, "prefix": self.one("##", "@@", "a", ""), "cleanup": self.flip()}
        if kind == "CTC":
            return {"type": kind, "pad_token": self.one("<pad>", "a"), "word_delimiter_token": self.one("|", "a"),
                    "cleanup": self.flip()}
        return {"type": kind}

    # Models

    def alphabet(self, byte_level):
        chars = tiny.byte_spelling() if byte_level else _CHARS
        share = self.one(0.4, 0.9, 1)
        return [char for char in chars if self.flip(share)] or ["a"]

    def bpe(self, byte_level):
        prefix = self.one(None, None, None, "", "##", "@")
        suffix = self.one(None, None, None, "", "</w>")
        byte_fallback = self.flip(0.3)
        vocab = dict.fromkeys(self.alphabet(byte_level))
        if prefix:
            vocab |= dict.fromkeys([prefix + char for char in vocab if self.flip(0.8)])
        if suffix:
            vocab |= dict.fromkeys([char + suffix for char in vocab if self.flip(0.8)])
        if byte_fallback:
            share = self.one(0.5, 1, 1)
            vocab |= dict.fromkeys([f"<0x{byte:02X}>" for byte in range(256) if self.flip(share)])
        merges = []
        for _ in range(self.rng.randint(0, 60)):
            known = list(vocab)
            left, right = self.one(*known), self.one(*known)
            joined = left + right.removeprefix(prefix or "")
            # The library cuts as many bytes as the prefix has off whatever stands on the right.
            if right.startswith(prefix or "") and len(joined) < 20 and [left, right] not in merges:
                vocab[joined] = None
                merges.append([left, right])
        unk = self.one(None, "<unk>", "<unk>", "a")
        if unk:
            vocab[unk] = None
        return {"type": "BPE", "dropout": None, "unk_token": unk, "continuing_subword_prefix": prefix,
                "end_of_word_suffix": suffix,
                "fuse_unk": self.flip(), "byte_fallback": byte_fallback, "ignore_merges": self.flip(0.3),
                "vocab": self.numbered(vocab),
                "merges": merges}

    def numbered(self, vocab):
        """Ids in random order, sometimes with gaps."""
        ids = list(range(len(vocab) + self.one(0, 0, 0, 5)))
        if self.flip():
            self.rng.shuffle(ids)
        return dict(zip(vocab, ids, strict=False))

    def words(self, byte_level, most=60):
        alphabet = self.alphabet(byte_level)
        words = ["".join(self.rng.choices(alphabet, k=self.one(1, 1, 1, 2, 3)))
                         for _ in range(self.rng.randint(1, most))]
        return list(
            dict.fromkeys(
                [*alphabet[: self.rng.randint(0, len(alphabet))],
                 *words, *self.some(lambda: self.one(*_UNITS),
                                    10)]))

    def unigram(self, byte_level):
        vocab = [[word, self.one(-1.0, -2.0, -self.rng.random() * 10, 0.0)] for word in self.words(byte_level)]
        byte_fallback = self.flip(0.3)
        if byte_fallback:
            vocab += [[f"<0x{byte:02X}>", 0.0] for byte in range(256) if self.flip(0.99)]
        self.rng.shuffle(vocab)
        unk_id = self.one(None, self.rng.randrange(len(vocab)), 0, 0)
        if unk_id == 0 and self.flip():
            vocab[0] = ["<unk>", 0.0]
        return {"type": "Unigram", "unk_id": unk_id, "vocab": vocab, "byte_fallback": byte_fallback}

    def word_piece(self, byte_level):
        prefix = self.one("##", "##", "@", "")
        words = self.words(byte_level)
        words += [prefix + word for word in self.words(byte_level)]
        unk = self.one("[UNK]", "[UNK]", "<unk>", "a")
        vocab = dict.fromkeys(words)
        if self.flip(0.9):
            vocab[unk] = None
        return {"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": prefix,
                "max_input_chars_per_word": self.one(100, 100, 5, 1), "vocab": self.numbered(vocab)}

    def word_level(self, byte_level):
        unk = self.one("<unk>", "<unk>", "[UNK]")
        return {"type": "WordLevel", "unk_token": unk,
                "vocab": self.numbered(dict.fromkeys([*self.words(byte_level), unk][self.one(0, 0, 1):]))}

    # The rest

    def added_tokens(self, model):
        vocab = model["vocab"] if isinstance(model["vocab"], dict) else {
                                             word: i for i, (word, _) in enumerate(model["vocab"])}
        contents = dict.fromkeys([*self.some(lambda: self.one(*_CONTENTS), 6), *self.some(lambda: self.one(*vocab), 2)])
        ids, following = {}, len(vocab)
        for content in contents:
            if not content:
                continue
            ids[content] = vocab.get(content, following)
            following = max(following, ids[content] + 1)
        return [{"id": token, "content": content, "single_word": self.flip(0.25), "lstrip": self.flip(0.25),
                 "rstrip": self.flip(0.25),
                 "normalized": self.flip(), "special": self.flip()} for content, token in ids.items()]

    def template(self):
        names = {"<s>": [1], "[X]": [0, 2]}
        piece = lambda: {"SpecialToken": {"id": self.one(*names), "type_id": 0}}  # noqa: E731
        single = [*self.some(piece, 2), {"Sequence": {"id": "A", "type_id": 0}}, *self.some(piece, 2)]
        return {"type": "TemplateProcessing", "single": single,
                "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {name: {"id": name, "ids": ids, "tokens": [name] * len(ids)} for name,
                                   ids in names.items()}}

    def post_processor(self):
        kind = self.one("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence")
        if kind == "TemplateProcessing":
            return self.template()
        if kind == "Sequence":  # what comes after a template sees several texts; lmdeploy refuses that
            steps = self.some(self.post_processor, 2)
            last = next((i for i, step in enumerate(steps) if "TemplateProcessing" in json.dumps(step)), 2)
            return {"type": kind, "processors": steps[:last + 1]}
        if kind == "BertProcessing":
            return {"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 1]}
        if kind == "RobertaProcessing":
            return {"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": self.flip(),
                    "add_prefix_space": self.flip()}
        return self.byte_level()


def random_config(seed):
    """A random tokenizer.json."""
    r = _Random(seed)
    byte_level = r.flip(0.3)
    model = r.one(r.bpe, r.bpe, r.unigram, r.word_piece, r.word_level)(byte_level)
    pre_tokenizer = r.pre_tokenizer() if r.flip(0.8) else None
    if byte_level and r.flip(0.8):
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [
            *([pre_tokenizer] if pre_tokenizer else []), r.byte_level()]}
    return json.loads(
        json.dumps(
            {"version": "1.0", "truncation": None, "padding": None, "added_tokens": r.added_tokens(model),
             "normalizer": r.normalizer() if r.flip(0.6) else None, "pre_tokenizer": pre_tokenizer,
             "post_processor": r.post_processor() if r.flip() else None, "decoder": r.decoder()
             if r.flip(0.8) else None, "model": model}))
