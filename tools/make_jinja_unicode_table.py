#!/usr/bin/env python3
"""Writes src/lmdeploy/jinja/unicode_table.inc: what Python's str methods know about each code point.

Run with the Python whose behaviour is wanted:  python3 tools/make_jinja_unicode_table.py
"""
import pathlib
import unicodedata

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/lmdeploy/jinja/unicode_table.inc"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

PROPERTIES = {  # name -> predicate on a one-character string
    "kAlpha": str.isalpha,
    "kDecimal": str.isdecimal,
    "kDigit": str.isdigit,
    "kNumeric": str.isnumeric,
    "kPrintable": str.isprintable,
    "kSpace": str.isspace,
    "kUpper": str.isupper,
    "kLower": str.islower,
    "kTitle": lambda c: unicodedata.category(c) == "Lt",
    # Python turns a final capital sigma into U+03C2; these two say what "final" looks at.
    "kCaseIgnorable": lambda c: ("A" + c + "\u03a3").lower()[-1] == "\u03c2" and (c + "\u03a3").lower()[-1] != "\u03c2",
    "kCased": lambda c: (c + "\u03a3").lower()[-1] == "\u03c2",
    "kIdentifierStart": str.isidentifier,
    "kIdentifierPart": lambda c: ("a" + c).isidentifier(),
}


def ranges(predicate):
    out = []
    for c in CODE_POINTS:
        if not predicate(chr(c)):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def runs(convert):
    """[first, last, step, delta]: code points first, first + step, ..., last map to themselves plus delta."""
    out = []
    for c in CODE_POINTS:
        to = convert(chr(c))
        if len(to) != 1 or to == chr(c):
            continue
        delta = ord(to) - c
        last = out[-1] if out else None
        if last and last[3] == delta and c - last[1] in (1, 2) and last[2] in (0, c - last[1]):
            last[1], last[2] = c, c - last[1]
        else:
            out.append([c, c, 0, delta])
    return [[a, b, step or 1, d] for a, b, step, d in out]


def specials(convert):
    return [(c, convert(chr(c))) for c in CODE_POINTS if len(convert(chr(c))) != 1]


def rows(items, per_line):
    return "".join("    " + " ".join(items[i : i + per_line]) + "\n" for i in range(0, len(items), per_line))


def utf8_literal(text):
    return '"' + "".join(f"\\x{b:02x}" for b in text.encode()) + '"'


def main():
    text = f"// Written by tools/make_jinja_unicode_table.py: Unicode {unicodedata.unidata_version}.\n// clang-format off\n"
    for name, predicate in PROPERTIES.items():
        items = [f"{{0x{a:x}, 0x{b:x}}}," for a, b in ranges(predicate)]
        text += f"constexpr CodePointRange {name}Ranges[] = {{\n{rows(items, 8)}}};\n"
    for name, convert in {"kToLower": str.lower, "kToUpper": str.upper, "kToTitle": str.title, "kToFold": str.casefold}.items():
        items = [f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}," for a, b, s, d in runs(convert)]
        text += f"constexpr CaseRun {name}[] = {{\n{rows(items, 6)}}};\n"
        items = [f"{{0x{c:x}, {utf8_literal(t)}}}," for c, t in specials(convert)]
        text += f"constexpr CaseSpecial {name}Special[] = {{\n{rows(items, 4)}}};\n"
    OUT.write_text(text + "// clang-format on\n", encoding="utf-8")


if __name__ == "__main__":
    main()
