"""Random documents that follow a JSON schema: for tests, and only for the keywords that tests/data/grammar uses."""
from __future__ import annotations

import random
import re
import string
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as sre_parse
else:
    import sre_constants as sre
    import sre_parse

_FORMATS = {
    "date": ["2024-02-29", "1999-12-31", "2023-04-30"], "time": ["23:59:59Z", "00:00:00.25+05:30"],
    "date-time": ["2024-02-29T10:20:30Z", "2001-01-01T00:00:00.123456-08:00"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "email": ["a.b@example.com", "x+y@mail.example.org"],
    "hostname": ["example.com", "a-b.c", "localhost"], "ipv4": ["0.0.0.0", "192.168.1.254"],
    "ipv6": ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"], "uri": ["https://example.com/a/b?c=d#e", "mailto:a@b.co"],
    "duration": ["P1D", "PT2H30M", "P3W"], "json-pointer": ["", "/a~1b/0"], "uri-reference": ["/a/b?c", "https://a.b/"],
}
_LETTERS = string.ascii_letters + string.digits + " -_/.,:\u00e9\u65e5\U0001f600\"\\\n\t"


class Impossible(Exception):
    """No document was found; another try may find one."""


class Documents:
    """documents(schema).make() is a random value; keys stand in the order in which a grammar wants them."""

    def __init__(self, schema: Any, seed: int) -> None:
        self.root = schema
        self.rng = random.Random(seed)

    def make(self) -> Any:
        return self._value([self.root], 0)

    def _resolve(self, ref: str) -> Any:
        if not ref.startswith("#/"):
            return self.root if ref == "#" else self._anchor(self.root, ref[1:])
        found = self.root
        for part in ref[2:].split("/"):
            found = found[part.replace("%25", "%").replace("~1", "/").replace("~0", "~")]
        return found

    def _anchor(self, node: Any, name: str) -> Any:
        if isinstance(node, dict):
            if node.get("$anchor") == name:
                return node
            node = list(node.values())
        for inner in node if isinstance(node, list) else []:
            if (found := self._anchor(inner, name)) is not None:
                return found
        return None

    def _parts(self, schemas: list) -> list[dict]:
        """Schemas without combinations, one choice made at each anyOf and oneOf."""
        parts: list[dict] = []
        for schema in schemas:
            if schema is True:
                continue
            if schema is False:
                raise Impossible
            parts.append(schema)
            inner = [self._resolve(schema["$ref"])] if "$ref" in schema else []
            inner += schema.get("allOf", [])
            inner += [self.rng.choice(schema[word]) for word in ("anyOf", "oneOf") if word in schema]
            parts += self._parts(inner)
        return parts

    def _value(self, schemas: list, depth: int) -> Any:
        if depth > 24:
            raise Impossible
        parts = self._parts(schemas)
        for part in parts:
            if "const" in part:
                return part["const"]
            if "enum" in part:
                return self.rng.choice(part["enum"])
        makers = {"null": lambda *_: None, "boolean": lambda *_: self.rng.random() < 0.5, "integer": self._integer,
                  "number": self._number, "string": self._string, "array": self._array, "object": self._object}
        return makers[self._type(parts)](parts, depth)

    def _type(self, parts: list[dict]) -> str:
        allowed = None
        for part in parts:
            if "type" in part:
                types = set(part["type"] if isinstance(part["type"], list) else [part["type"]])
                types |= {"integer"} if "number" in types else set()
                types |= {"null"} if part.get("nullable") else set()
                allowed = types if allowed is None else allowed & types
        if allowed is None:
            words = {word for part in parts for word in part}
            allowed = ({"object"} if words & {"properties", "required"} else {"array"} if "items" in words
                       else {"null", "boolean", "integer", "string"})
        for part in parts:
            allowed -= {part.get("not", {}).get("type")}
        if not allowed:
            raise Impossible
        return self.rng.choice(sorted(allowed))

    @staticmethod
    def _bound(parts: list[dict], word: str, best, default):
        values = [part[word] for part in parts if word in part and not isinstance(part[word], bool)]
        return best(values) if values else default

    def _integer(self, parts: list[dict], depth: int) -> int:
        low = max(self._bound(parts, "minimum", max, -10**6), self._bound(parts, "exclusiveMinimum", max, -10**6) + 1)
        high = min(self._bound(parts, "maximum", min, max(low, 0) + 10**6),
                   self._bound(parts, "exclusiveMaximum", min, 10**18) - 1)
        step = self._bound(parts, "multipleOf", max, 1)
        low, high = -int(-low // 1), int(high // 1)
        if low > high:
            raise Impossible
        value = self.rng.choice([low, high, self.rng.randint(low, high)])
        return int(value // step * step)

    def _number(self, parts: list[dict], depth: int) -> float | int:
        low = max(self._bound(parts, "minimum", max, -1e4), self._bound(parts, "exclusiveMinimum", max, -1e4))
        high = min(self._bound(parts, "maximum", min, max(low, 0) + 1e4),
                   self._bound(parts, "exclusiveMaximum", min, 1e9))
        step = self._bound(parts, "multipleOf", max, None)
        if step is not None:
            return self.rng.randint(int(low / step) + 1, int(high / step)) * step
        value = float(f"{self.rng.uniform(low, high):.{self.rng.randint(1, 6)}f}")
        return int(value) if value == int(value) and self.rng.random() < 0.5 else value

    def _string(self, parts: list[dict], depth: int) -> str:
        patterns = [part["pattern"] for part in parts if "pattern" in part]
        formats = [part["format"] for part in parts if "format" in part]
        if formats:
            return self.rng.choice(_FORMATS[formats[0]])
        if patterns:
            return matching(patterns[0], self.rng)
        low = self._bound(parts, "minLength", max, 0)
        high = min(self._bound(parts, "maxLength", min, low + 12), low + 60)
        return "".join(self.rng.choice(_LETTERS) for _ in range(self.rng.randint(low, max(low, high))))

    def _array(self, parts: list[dict], depth: int) -> list:
        low = self._bound(parts, "minItems", max, 0)
        high = min(self._bound(parts, "maxItems", min, low + 3), low + 4)
        items = []
        for i in range(self.rng.randint(low, max(low, high)) if depth < 6 else low):
            schemas = [self._of_item(part, i) for part in parts]
            if False in schemas:
                break
            items.append(self._value(schemas, depth + 1))
        return items

    @staticmethod
    def _of_item(part: dict, index: int) -> Any:
        rest = part.get("items", True)
        first = part.get("prefixItems", [])
        if isinstance(rest, list):
            first, rest = rest, part.get("additionalItems", True)
        return first[index] if index < len(first) else rest

    def _object(self, parts: list[dict], depth: int) -> dict:
        names: list[str] = []
        required: list[str] = []
        for part in parts:
            names += [name for name in part.get("properties", {}) if name not in names]
            required += part.get("required", [])
        names += [name for name in required if name not in names]
        out = {}
        for name in names:
            if name in required or (self.rng.random() < 0.5 and depth < 6):
                out[name] = self._value(self._of_key(parts, name), depth + 1)
        for name in self._open_keys(parts) if depth < 6 else []:
            schemas = self._of_key(parts, name)
            if name not in names and False not in schemas:
                out[name] = self._value(schemas, depth + 1)
        return out

    def _open_keys(self, parts: list[dict]) -> list[str]:
        kept = [part["propertyNames"] for part in parts if "propertyNames" in part]
        patterns = [pattern for part in parts for pattern in part.get("patternProperties", {})]
        if any("unevaluatedProperties" in part for part in parts):
            return []
        pool = ["k", "key two", "\u00fcber"]
        if patterns:
            pool += [matching(self.rng.choice(patterns), self.rng)]
        if kept:
            pool = kept[0].get("enum") or [matching(kept[0]["pattern"], self.rng)]
        count = min(self._bound(parts, "maxProperties", min, 2), 2, len(pool))
        return self.rng.sample(pool, self.rng.randint(0, max(0, count)))

    @staticmethod
    def _of_key(parts: list[dict], name: str) -> list:
        schemas: list = []
        for part in parts:
            known = [part["properties"][name]] if name in part.get("properties", {}) else []
            known += [schema for pattern, schema in part.get("patternProperties", {}).items()
                      if re.search(pattern, name)]
            schemas += known or ([part["additionalProperties"]] if "additionalProperties" in part else [])
        return schemas


def matching(pattern: str, rng: random.Random) -> str:
    """A random text that has a match of `pattern`."""
    return _texts(sre_parse.parse(pattern, re.ASCII), rng)


def _texts(items: Any, rng: random.Random) -> str:
    return "".join(_text(op, arg, rng) for op, arg in items)


def _text(op: Any, arg: Any, rng: random.Random) -> str:
    if op is sre.LITERAL:
        return chr(arg)
    if op in (sre.NOT_LITERAL, sre.ANY):
        return rng.choice([c for c in "ab \u00e9/" if ord(c) != arg])
    if op is sre.AT:
        return ""
    if op is sre.BRANCH:
        return _texts(rng.choice(arg[1]), rng)
    if op is sre.SUBPATTERN:
        return _texts(arg[3], rng)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        low, high, body = arg
        return "".join(_texts(body, rng) for _ in range(rng.randint(low, min(high, low + 4))))
    if op is sre.IN:
        return _member(arg, rng)
    raise NotImplementedError(op)


def _member(options: list, rng: random.Random) -> str:
    classes = {sre.CATEGORY_DIGIT: string.digits, sre.CATEGORY_WORD: string.ascii_letters + "_0123456789",
               sre.CATEGORY_SPACE: " \t", sre.CATEGORY_NOT_SPACE: "abc.-"}
    if options[0][0] is sre.NEGATE:
        excluded = re.compile("[" + "".join("\\" + chr(arg) for op, arg in options[1:] if op is sre.LITERAL) + "]")
        return rng.choice([c for c in "ab1 \u00e9-" if not excluded.match(c)])
    op, arg = rng.choice(options)
    if op is sre.LITERAL:
        return chr(arg)
    if op is sre.RANGE:
        return chr(rng.randint(*arg))
    return rng.choice(classes[arg])
