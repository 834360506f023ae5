"""Random texts and ids that tokenizers find hard."""
import random
import unicodedata

#: First and last code points of what is drawn from: scripts and blocks of every plane, what is unassigned included.
_BLOCKS = [
    (0x00, 0x1F), (0x20, 0x7E), (0x7F, 0x9F), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F),
    (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF), (0x700, 0x7BF), (0x840, 0x8FF),
    (0x900, 0x97F), (0x980, 0x9FE), (0xB80, 0xBFA), (0xD00, 0xD7F), (0xE00, 0xE5B), (0xE80, 0xEDF), (0xF00, 0xFDA),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137C), (0x13A0, 0x13FD), (0x1780, 0x17F9),
    (0x1800, 0x18AA), (0x1AB0, 0x1ADD), (0x1C80, 0x1CBF), (0x1D00, 0x1DFF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFE),
    (0x2000, 0x206F), (0x2070, 0x209C), (0x20A0, 0x20FF), (0x2100, 0x214F), (0x2150, 0x218B), (0x2190, 0x23FF),
    (0x2460, 0x24FF), (0x2500, 0x27BF), (0x2900, 0x2BFF), (0x2C00, 0x2DFF), (0x2E00, 0x2E5D), (0x2E80, 0x2FFF),
    (0x3000, 0x303F), (0x3040, 0x30FF), (0x3105, 0x31FF), (0x3200, 0x33FF), (0x3400, 0x4DFF), (0x4E00, 0x9FFF),
    (0xA000, 0xA4CF), (0xA640, 0xA69F), (0xA700, 0xA7FF), (0xA800, 0xA8FF), (0xA960, 0xA97C), (0xAB30, 0xAB6B),
    (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF),
    (0xFE00, 0xFE6F), (0xFE70, 0xFEFF), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF), (0x10000, 0x103FF), (0x10400, 0x10FFF),
    (0x11000, 0x11FFF), (0x12000, 0x16FFF), (0x17000, 0x1BCAF), (0x1CC00, 0x1CFC3), (0x1D000, 0x1D3FF),
    (0x1D400, 0x1D7FF), (0x1DF00, 0x1E2FF), (0x1E800, 0x1EEFF), (0x1F000, 0x1F2FF), (0x1F300, 0x1F64F),
    (0x1F650, 0x1FAFF), (0x1FB00, 0x1FBFF), (0x20000, 0x2FA1D), (0x30000, 0x33479), (0xE0001, 0xE01EF),
    (0xF0000, 0x10FFFF),
]
_SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\r", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u180e", "\u2002",
           "\u2009", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "\u2581"]
_CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m",
    "'ll", "'Ll", "'d", "'\u017f", "\u2019s", "''s", "n't", " ' "]
_EMOJI = ["\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F1E9\U0001F1EA", "\U0001F44B\U0001F3FD",
          "\u2764\ufe0f\u200d\U0001F525", "1\ufe0f\u20e3", "\U0001F3F4\U000E0067\U000E0062\U000E007F", "\u263a\ufe0e"]
_WORDS = ["the", "The", "hello", "World", "don't", "I'm", "naïve", "straße", "İstanbul", "ΣΊΣΥΦΟΣ", "Ångström", "ﬁnal",
          "мир", "שלום", "مرحبا", "नमस्ते", "ไทย", "日本語", "カタカナ", "ｶﾞ", "中文", "한국어", "각", "①²½Ⅷ", "３．１４", "Ǆ",
          "x1y2", "camelCase", "snake_case", "ALLCAPS", "ab" * 20]
_CODE = [
    "def f(x):\n    return x**2\n", "#include <a.h>\n", "if (a[i] != '\\0') {\n\t++n; // ?\n}\n",
    "https://a.b/c?d=e&f#g", "<div class=\"x\">&amp;</div>", "\x1b[31m", "a\\u0041", "$\\frac{1}{2}$", "```py\n",
    "SELECT * FROM t;", "x|y", "--" * 5]
_DIGITS = ["0", "7", "42", "123", "1234567", "3.14", "1,000", "-5e-7", "0x1F", "٣٤", "१२", "𝟙𝟚", "௰", "Ⅻ", "㊿"]


def _is_valid(code):
    return not 0xD800 <= code <= 0xDFFF


class Texts:
    """Texts for one tokenizer: ``pieces`` are spellings of its vocabulary, ``added`` its added tokens."""

    def __init__(self, seed, pieces=(), added=()):
        self.rng = random.Random(seed)
        self.pieces = list(pieces) or ["a"]
        self.added = list(added)
        self.kinds = [
            self.block, self.block, self.block, self.anywhere, self.marks, self.jamo, self.space, self.space, self.run,
            lambda: self.rng.choice(_CONTRACTIONS), lambda: self.rng.choice(_EMOJI), self.word, self.word, self.word,
            lambda: self.rng.choice(_CODE), lambda: self.rng.choice(_DIGITS), self.punctuation, self.broken, self.piece,
            self.piece, self.normal_form, lambda: " ", lambda: " ",
        ] + [self.special] * (4 if self.added else 0)

    def chars(self, first, last, most=6):
        codes = (self.rng.randint(first, last) for _ in range(self.rng.randint(1, most)))
        return "".join(chr(code) for code in codes if _is_valid(code))

    def block(self):
        return self.chars(*self.rng.choice(_BLOCKS))

    def anywhere(self):
        return self.chars(0, 0x10FFFF, 3)

    def marks(self):
        """A letter with marks of several combining classes, in any order."""
        marks = self.rng.choices(
            "\u0301\u0300\u0323\u0327\u0308\u030a\u0345\u05b0\u064b\u093c\u3099\U0001d165\u20dd\u1abe", k=4)
        return self.rng.choice("aeAEǗßçकがאи ") + "".join(marks[:self.rng.randint(1, 4)])

    def jamo(self):
        return self.chars(0x1100, 0x1112, 2) + self.chars(0x1161, 0x1175, 2) + self.chars(0x11A7, 0x11C2, 2)

    def space(self):
        return "".join(self.rng.choices(_SPACES, k=self.rng.choice((1, 1, 1, 2, 5))))

    def run(self):
        """One character or piece many times."""
        unit = self.rng.choice((" ", "\n", "\t", "a", "=", "-", "0", ".", "\u3000",
                               "é", "中", "\U0001F600", "\u0301", self.piece()))
        return unit * self.rng.choice((3, 8, 17, 70))

    def word(self):
        word = self.rng.choice(_WORDS)
        return self.rng.choice((word, word.upper(), word.lower(), word.title(), " " + word))

    def punctuation(self):
        return "".join(self.rng.choices("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¿«»—…、。「」！؟।§€", k=self.rng.randint(1, 4)))

    def broken(self):
        return self.rng.choice(
            ("\ufffd", "\ufffd\ufffd", "\x00", "a\x00b", "\x7f", "\ufffe", "\U0001ffff", "<0x41>", "</w>", "##"))

    def piece(self):
        return "".join(self.rng.choices(self.pieces, k=self.rng.randint(1, 4)))

    def normal_form(self):
        form = self.rng.choice(("NFC", "NFD", "NFKC", "NFKD"))
        return unicodedata.normalize(form, self.word() + self.block())

    def special(self):
        """An added token whole, cut, doubled, in a word, with space around, in another case."""
        token = self.rng.choice(self.added)
        cut = self.rng.randint(0, len(token))
        around = self.rng.choice(_SPACES)
        return self.rng.choice(
            (token, token, token +token, token[: cut],
             token[cut:],
             f"a{token}b", around +token, token +around, around +token +around, token[: cut] +" " +token[cut:],
             token.upper(),
             token.lower(),
             f"_{token}", f"{token}\u0301", token[: cut] +self.rng.choice(self.added)))

    def text(self):
        return "".join(self.rng.choice(self.kinds)() for _ in range(self.rng.choice((1, 1, 2, 3, 4, 6, 10))))

    def ids(self, vocab_size, special, bytes_):
        """Random ids: any, special ones, runs of byte tokens (``bytes_``, may be none), beyond the vocabulary."""
        out = []
        for _ in range(self.rng.choice((0, 1, 2, 5, 9))):
            kind = self.rng.randrange(10)
            if kind < 2 and special:
                out += self.rng.choices(special, k=self.rng.randint(1, 3))
            elif kind < 5 and bytes_:
                text = self.rng.choice((self.block(), self.word(), self.rng.choice(_EMOJI))).encode()
                spelled = [bytes_[byte] for byte in text if byte in bytes_]
                cut = self.rng.randint(0, len(spelled))
                out += self.rng.choice((spelled, spelled[:cut], spelled[cut:],
                                       self.rng.choices(list(bytes_.values()), k=3)))
            elif kind == 9 and self.rng.random() < 0.1:
                out.append(vocab_size + self.rng.randrange(1000))
            else:
                out += [self.rng.randrange(vocab_size) for _ in range(self.rng.randint(1, 6))]
        return out
