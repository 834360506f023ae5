"""Random templates through lmdeploy.chat_template and through Python's jinja2: equal output, or both fail.

    python tests/python/jinja_fuzz.py --seconds 600 --seed 1
"""
import argparse
import math
import re
import sys
import time
import warnings

import jinja_grammar
import jinja_reference
from lmdeploy import chat_template
from lmdeploy.errors import LmdeployError

#: What lmdeploy bounds on purpose and Python does not.
BOUNDS = re.compile(r"more than 127 bits|10 million steps|more than 64 MiB|the repetition is too long")
#: What prints a memory address in Python, or could count its digits.
ADDRESS = re.compile(r"0x[0-9a-f]{8,}", re.IGNORECASE)
METHODS = re.compile(r"attribute='items'")


def reference(env, source, variables):
    """(output, None) or (None, error)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return env.from_string(source).render(**variables), None
    except Exception as error:
        return None, error


def native(source, variables):
    try:
        return chat_template.render(source, variables, now=jinja_reference.NOW), None
    except LmdeployError as error:
        return None, error


def difference(source, reference_result, native_result):
    """What is different between two pairs of (output, error), or None."""
    want, want_error = reference_result
    got, error = native_result
    if error is not None and BOUNDS.search(str(error)):
        return None
    if want is not None and (ADDRESS.search(want) or METHODS.search(source)):
        return None
    if want is not None and "object is not subscriptable" in str(error):
        return None  # jinja2 computes constant expressions with a rule of its own: "{{ (0)[1:] }}" prints nothing
    if want != got:
        return f"template {source!r}\n  jinja2  {want!r} {want_error!r}\n  lmdeploy {got!r} {error!r}"
    own_words = type(want_error).__name__ == "TemplateError"
    if own_words and str(want_error) not in str(error):
        return f"template {source!r}\n  jinja2 raises {want_error}, lmdeploy {error}"
    return None


def run(seed, seconds=math.inf, max_templates=math.inf, max_differences=10):
    """(number of templates, number that rendered, differences)."""
    env = jinja_reference.environment()
    found, count, rendered = [], 0, 0
    end = time.monotonic() + seconds
    while count < max_templates and time.monotonic() < end and len(found) < max_differences:
        source = jinja_grammar.Grammar(f"{seed}.{count}").template()
        want = reference(env, source, jinja_grammar.VARIABLES)
        text = difference(source, want, native(source, jinja_grammar.VARIABLES))
        rendered += want[1] is None
        count += 1
        if text:
            found.append(f"seed {seed}.{count - 1}: {text}")
    return count, rendered, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-differences", type=int, default=10)
    options = parser.parse_args()
    count, rendered, found = run(options.seed, options.seconds, max_differences=options.max_differences)
    print(*found, sep="\n")
    print(f"{count} templates, {rendered} of them render, {len(found)} differences")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
