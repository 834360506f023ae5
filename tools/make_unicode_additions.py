#!/usr/bin/env python3
"""Writes src/lmdeploy/text/unicode/unicode_additions.inc: what Unicode 16 added to the tables of PCRE2 10.42 and utf8proc 2.8
(Unicode 14). Needs a Python whose unicodedata is 14.0 (3.11) and the package unicodedata2 16.0.

    python3.11 tools/make_unicode_additions.py > src/lmdeploy/text/unicode/unicode_additions.inc
"""
import unicodedata

import unicodedata2

assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "16.0.0"

runs = []
for code in range(0x110000):
    category = unicodedata2.category(chr(code))
    if category == unicodedata.category(chr(code)):
        continue
    if runs and runs[-1][1] == code - 1 and runs[-1][2] == category:
        runs[-1][1] = code
    else:
        runs.append([code, code, category])
print("// Made by tools/make_unicode_additions.py: {first, last, general category}, in order.")
for first, last, category in runs:
    print(f"{{0x{first:X}, 0x{last:X}, UTF8PROC_CATEGORY_{category.upper()}}},")
