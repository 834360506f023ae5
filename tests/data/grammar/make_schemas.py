"""Writes schemas.jsonl: schemas of the kinds that applications send, one a line, with a name.

Forms as typed-model libraries, OpenAPI documents, tool definitions and hand-written requests have them, each with
several fillings. Nothing here is copied from elsewhere.
"""
import functools
import json
import pathlib

SCHEMAS: dict[str, object] = {}


def add(name: str, schema: object) -> None:
    assert name not in SCHEMAS, name
    SCHEMAS[name] = schema


def obj(properties: dict, required: list | None = None, **more) -> dict:
    return {"type": "object", "properties": properties,
            "required": list(properties) if required is None else required, **more}


def closed(properties: dict, required: list | None = None, **more) -> dict:
    return obj(properties, required, additionalProperties=False, **more)


STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": name} for name in ("string", "integer", "number", "boolean", "null"))


def optional(schema: dict) -> dict:
    return {"anyOf": [schema, NULL], "default": None}


def scalars() -> None:
    for name, schema in {
        "string": STRING, "integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN, "null": NULL, "any": {},
            "true": True,
        "union": {"type": ["string", "integer", "null"]}, "number_or_bool": {"type": ["number", "boolean"]},
        "const_string": {"const": "fixed \"text\" \\ \u00e9\n"}, "const_number": {"const": -12.5},
            "const_null": {"const": None},
        "const_object": {"const": {"a": [1, {"b": None}], "c": {}}}, "const_array": {"const": [[], "x", 1e-7]},
        "enum_mixed": {"enum": ["a", "ab", "abc", 1, 1.5, None, True, [1], {"k": "v"}]},
        "enum_typed": {"type": "string", "enum": ["red", "green", "blue", "\u30d6\u30eb\u30fc"]},
        "enum_filtered": {"type": "integer", "enum": [1, 2, "3", 4, 5, None], "minimum": 2},
        "nullable": {"type": "string", "nullable": True, "maxLength": 5},
    }.items():
        add(f"scalar_{name}", schema)


def strings() -> None:
    for low, high in ((0, 0), (0, 1), (1, None), (3, 3), (2, 10), (0, 80), (40, 50), (5, 100000)):
        add(f"length_{low}_{high}", {"type": "string",
            "minLength": low} | ({} if high is None else {"maxLength": high}))
    for name in ("date", "time", "date-time", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "duration",
        "json-pointer",
                 "uri-reference"):
        add(f"format_{name}", {"type": "string", "format": name})
    for i, pattern in enumerate((
            "^[A-Z]{3}-[0-9]{4}$", "^#[0-9a-f]{6}$", "^\\+?[0-9 ()-]{5,20}$", "^(yes|no|maybe)$",
                "^[a-z][a-z0-9_]{0,31}$",
            "^v\\d+\\.\\d+\\.\\d+(-[a-z]+)?$", "needle", "^start", "end$", "^[^<>]{1,20}$", "^(?:[a-z]+/)*[a-z]+$",
            "^[\\u4e00-\\u9fff]{1,8}$", "^\\S+@\\S+$", "^(\\d{3}-){2}\\d{4}$", "^.{2,6}$", "^(a|b)*abb$",
                "^\\w+(\\s\\w+)*$",
            "^\"[^\"\\\\]*\"$", "^$|^x+$", "^[0-9]{1,3}(,[0-9]{3})*$")):
        add(f"pattern_{i}", {"type": "string", "pattern": pattern})
    add("pattern_length", {"type": "string", "pattern": "^[a-z ]+$", "minLength": 4, "maxLength": 12})
    add("pattern_two", {"allOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"pattern": "x"}, {"maxLength": 9}]})
    add("format_length", {"type": "string", "format": "hostname", "maxLength": 12})


def numbers() -> None:
    for low, high in ((0, 9), (-12, 305), (1, None), (None, -7), (100, 100), (-5, 5), (1900, 2100), (0, 4294967295),
        (-9007199254740993, 17)):
        bounds = {k: v for k, v in (("minimum", low), ("maximum", high)) if v is not None}
        add(f"integer_{low}_{high}", {"type": "integer", **bounds})
    for i, bounds in enumerate(({"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0}, {"minimum": -90, "maximum": 90},
                                {"exclusiveMinimum": -0.5, "exclusiveMaximum": 0.25}, {"minimum": 1e3, "maximum": 1e6},
                                {"maximum": -3.25}, {"minimum": 0.001, "maximum": 0.002}, {"exclusiveMaximum": 100})):
        add(f"number_{i}", {"type": "number", **bounds})
    for divisor in (2, 5, 7, 12, 100, 360):
        add(f"multiple_{divisor}", {"type": "integer", "multipleOf": divisor, "minimum": 0, "maximum": 100000})
    for divisor in (0.5, 0.25, 10, 3):
        add(f"number_multiple_{divisor}", {"type": "number", "multipleOf": divisor, "minimum": -1000})
    add("integer_exclusive", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3})
    add("integer_from_float_bounds", {"type": "integer", "minimum": 0.5, "maximum": 7.9})


def arrays() -> None:
    for low, high in ((0, None), (1, None), (0, 3), (2, 2), (3, 40), (0, 0)):
        more = {"minItems": low} | ({} if high is None else {"maxItems": high})
        add(f"array_{low}_{high}", {"type": "array", "items": INTEGER, **more})
    add("array_strings", {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 5})
    add("array_enum", {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 6})
    add("array_of_arrays", {"type": "array", "items": {"type": "array", "items": NUMBER, "minItems": 2,
        "maxItems": 2}, "maxItems": 4})
    add("array_any", {"type": "array", "maxItems": 3})
    add("tuple", {"type": "array", "prefixItems": [STRING, INTEGER, BOOLEAN], "items": False, "minItems": 3})
    add("tuple_open", {"type": "array", "prefixItems": [{"const": "v1"}, INTEGER], "items": NULL, "maxItems": 5})
    add("tuple_old", {"type": "array", "items": [NUMBER, NUMBER], "additionalItems": False, "minItems": 1})
    add("array_objects", {"type": "array", "items": closed({"id": INTEGER, "tag": {"type": "string",
        "maxLength": 6}}), "minItems": 1, "maxItems": 3})
    add("array_large", {"type": "array", "items": NUMBER, "minItems": 10, "maxItems": 1000})


def records() -> None:
    fields = {
        "name": {"type": "string", "minLength": 1, "maxLength": 40}, "age": {"type": "integer", "minimum": 0,
            "maximum": 150},
        "email": {"type": "string", "format": "email"}, "active": BOOLEAN, "score": {"type": "number", "minimum": 0,
            "maximum": 100},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 4},
        "created": {"type": "string", "format": "date-time"}, "note": optional({"type": "string", "maxLength": 30}),
    }
    names = list(fields)
    for size in range(1, len(names) + 1):
        some = {name: fields[name] for name in names[:size]}
        add(f"record_all_{size}", closed(some))
        add(f"record_optional_{size}", closed(some, names[:size:2]))
        add(f"record_open_{size}", obj(some, names[:1], additionalProperties={"type": ["string", "null"],
            "maxLength": 6}))
        add(f"record_none_required_{size}", closed(some, []))
    add("record_200_optional", closed({f"field_{i}": INTEGER if i % 2 else {"type": "string",
        "maxLength": 3} for i in range(200)}, []))
    add("record_30_required", closed({f"p{i}": BOOLEAN for i in range(30)}))


def applications() -> None:
    address = closed({"street": {"type": "string", "maxLength": 30}, "city": {"type": "string", "maxLength": 20},
                      "zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "country": {"type": "string",
                          "pattern": "^[A-Z]{2}$"}},
                     ["street", "city"])
    add("person", closed({"name": STRING, "address": address, "phones": {"type": "array", "maxItems": 2,
        "items": closed(
        {"kind": {"enum": ["home", "work"]}, "number": {"type": "string", "pattern": "^\\+[0-9]{7,12}$"}})}}))
    add("weather_call", closed({"location": {"type": "string", "description": "City and state", "maxLength": 30},
                                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, ["location"]))
    add("search_call", closed({"query": {"type": "string", "minLength": 1, "maxLength": 50},
        "top_k": {"type": "integer", "minimum": 1, "maximum": 20},
                               "filters": {"type": "object", "additionalProperties": {"type": "string",
                                   "maxLength": 5}, "maxProperties": 2}}, ["query"]))
    add("invoice", closed({"number": {"type": "string", "pattern": "^INV-\\d{6}$"}, "date": {"type": "string",
        "format": "date"},
                           "lines": {"type": "array", "minItems": 1, "maxItems": 3, "items": closed(
                               {"sku": {"type": "string", "maxLength": 8}, "quantity": {"type": "integer",
                                   "minimum": 1, "maximum": 999},
                                "price": {"type": "number", "minimum": 0, "maximum": 10000}})},
                           "currency": {"enum": ["EUR", "USD", "JPY"]}, "paid": BOOLEAN}))
    add("sentiment", closed({"label": {"enum": ["positive", "neutral", "negative"]}, "confidence": {"type": "number",
        "minimum": 0, "maximum": 1}}))
    add("chain_of_thought", closed({"steps": {"type": "array", "minItems": 1, "maxItems": 3, "items": closed(
        {"explanation": {"type": "string", "maxLength": 40}, "output": {"type": "string", "maxLength": 20}})},
            "final_answer": {"type": "string", "maxLength": 20}}))
    add("point", closed({"type": {"const": "Point"}, "coordinates": {"type": "array", "prefixItems": [
        {"type": "number", "minimum": -180, "maximum": 180}, {"type": "number", "minimum": -90, "maximum": 90}],
            "items": False, "minItems": 2}}))
    add("config", closed({"host": {"type": "string", "format": "hostname"}, "port": {"type": "integer", "minimum": 1,
        "maximum": 65535},
                          "tls": closed({"enabled": BOOLEAN, "versions": {"type": "array", "items": {"enum": ["1.2",
                              "1.3"]}, "maxItems": 2}}, ["enabled"]),
                          "env": {"type": "object", "propertyNames": {"pattern": "^[A-Z_]{1,8}$"},
                              "additionalProperties": {"type": "string", "maxLength": 5}, "maxProperties": 3}},
                                  ["host", "port"]))
    add("event", {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"},
        "at": {"type": "string", "format": "date-time"}},
                  "required": ["id", "at"], "patternProperties": {"^x-": {"type": "string", "maxLength": 4}},
                      "additionalProperties": False})
    add("map_of_numbers", {"type": "object", "additionalProperties": NUMBER, "minProperties": 1, "maxProperties": 3})
    add("map_of_maps", {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "object",
        "maxProperties": 2, "additionalProperties": BOOLEAN}})
    add("names_enum", {"type": "object", "propertyNames": {"enum": ["x", "y", "zz"]}, "additionalProperties": INTEGER,
        "maxProperties": 3})
    add("two_patterns", {"type": "object", "patternProperties": {"^i_": INTEGER, "_s$": {"type": "string",
        "maxLength": 3}}, "additionalProperties": False, "maxProperties": 3})
    add("declared_and_pattern", {"type": "object", "properties": {"i_first": {"minimum": 10}}, "required": ["i_first"],
                                 "patternProperties": {"^i_": INTEGER}, "additionalProperties": {"type": "null"},
                                     "maxProperties": 3})
    add("min_properties", closed({"a": INTEGER, "b": BOOLEAN, "c": NULL, "d": {"enum": ["x"]}}, [], minProperties=2))
    add("max_properties", closed({"a": INTEGER, "b": BOOLEAN, "c": NULL, "d": {"enum": ["x"]}}, ["c"], maxProperties=2))
    add("odd_keys", closed({"a b": INTEGER, "\"q\"": INTEGER, "\\": INTEGER, "\u65e5\u672c": INTEGER, "": INTEGER,
        "a\tb": INTEGER}))
    add("prefix_keys", obj({"a": INTEGER, "ab": STRING | {"maxLength": 3}, "abc": NULL}, ["ab"],
        additionalProperties=BOOLEAN, maxProperties=4))
    add("untyped_object", {"properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False})
    add("untyped_array", {"items": BOOLEAN, "maxItems": 3})


def references() -> None:
    add("tree", {"$ref": "#/$defs/node", "$defs": {"node": closed({"value": INTEGER, "children": {"type": "array",
        "maxItems": 2, "items": {"$ref": "#/$defs/node"}}}, ["value"])}})
    add("list", {"$ref": "#/definitions/cell", "definitions": {"cell": closed({"head": INTEGER,
        "tail": {"anyOf": [{"$ref": "#/definitions/cell"}, NULL]}})}})
    add("root_recursion", closed({"c": {"$ref": "#/$defs/C"}, "kids": {"type": "array", "items": {"$ref": "#"},
        "maxItems": 2}}, ["c"], **{"$defs": {"C": {"enum": ["red", "blue"]}}}))
    add("expression", {"$ref": "#/$defs/e", "$defs": {
        "e": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 99}, {"$ref": "#/$defs/sum"},
            {"$ref": "#/$defs/neg"}]},
        "sum": closed({"op": {"const": "+"}, "args": {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 2,
            "maxItems": 2}}),
        "neg": closed({"op": {"const": "-"}, "arg": {"$ref": "#/$defs/e"}})}})
    add("mutual", {"$ref": "#/$defs/a", "$defs": {"a": closed({"b": {"$ref": "#/$defs/b"}}, []),
        "b": closed({"a": {"$ref": "#/$defs/a"}}, [])}})
    add("anchor", {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "array", "items": BOOLEAN,
        "maxItems": 2}}})
    add("escaped_pointer", {"$ref": "#/$defs/a~1b~0c%25", "$defs": {"a/b~c%": {"enum": [1, 2]}}})
    add("ref_with_siblings", {"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {"type": "integer", "minimum": 0}}})
    for size in (2, 5, 12):
        defs = {f"M{i}": closed({"kind": {"const": f"m{i}"}, "value": INTEGER if i % 2 else {"type": "string",
            "maxLength": 4}}) for i in range(size)}
        add(f"discriminated_{size}", {"oneOf": [{"$ref": f"#/$defs/M{i}"} for i in range(size)],
            "discriminator": {"propertyName": "kind"}, "$defs": defs})
        add(f"any_of_models_{size}", {"type": "array", "maxItems": 2,
            "items": {"anyOf": [{"$ref": f"#/$defs/M{i}"} for i in range(size)]}, "$defs": defs})


def combinations() -> None:
    base = obj({"id": {"type": "integer", "minimum": 1}}, ["id"])
    for i, extra in enumerate((obj({"name": {"type": "string", "maxLength": 5}}), obj({"flag": BOOLEAN}, []),
                               {"properties": {"id": {"maximum": 50}}}, {"required": ["id", "other"],
                                   "properties": {"other": NULL}})):
        add(f"all_of_{i}", {"allOf": [base, extra], "maxProperties": 3})
    add("all_of_three", {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}], "unevaluatedProperties": False,
                         "$defs": {"x": obj({"x": INTEGER}), "y": obj({"y": INTEGER})}})
    add("either_required", closed({"a": INTEGER, "b": INTEGER}, [], anyOf=[{"required": ["a"]}, {"required": ["b"]}]))
    add("any_of_types", {"anyOf": [STRING | {"maxLength": 4}, {"type": "array", "items": STRING | {"maxLength": 2},
        "maxItems": 2}, NULL]})
    add("any_of_overlap", {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^z+$"}]})
    add("any_of_objects", {"anyOf": [closed({"a": INTEGER}), closed({"a": INTEGER, "b": INTEGER}),
        closed({"b": STRING | {"maxLength": 2}})]})
    add("one_of_types", {"oneOf": [INTEGER, STRING | {"maxLength": 3}, {"type": "array", "maxItems": 1,
        "items": INTEGER}]})
    add("one_of_ranges", {"oneOf": [{"type": "integer", "maximum": -1}, {"type": "integer", "minimum": 1}]})
    add("one_of_keys", {"oneOf": [closed({"url": {"type": "string", "format": "uri"}}),
        closed({"text": {"type": "string", "maxLength": 9}})]})
    add("nested_any_of", {"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"allOf": [{"enum": [3, 4, 5]},
        {"enum": [4, 5, 6]}]}]})
    add("enum_all_of", {"allOf": [{"enum": ["a", "b", "c"]}, {"enum": ["b", "c", "d"]}, {"not": {"type": "null"}}]})
    add("not_null", {"type": ["string", "null", "integer"], "not": {"type": "null"}, "maxLength": 4})
    for i, inner in enumerate((STRING | {"maxLength": 6}, INTEGER, {"type": "array", "items": NUMBER, "maxItems": 2},
        {"$ref": "#/$defs/S"})):
        add(f"optional_{i}", closed({"value": optional(inner), "other": optional({"enum": ["c", "f"]})}, ["value"],
            **{"$defs": {"S": closed({"x": BOOLEAN})}}))
    add("deep", functools.reduce(lambda inner, i: closed({f"level{i}": inner}), range(20), INTEGER))
    add("wide_union", {"type": "array", "maxItems": 3,
        "items": {"anyOf": [{"const": f"value-{i}"} for i in range(60)]}})
    add("large_enum", {"enum": [f"city of {chr(65 + i % 26)}{i * 7919 % 1000}" for i in range(300)]})


def tools() -> None:
    """Arguments of functions as agents declare them."""
    path = {"type": "string", "pattern": "^/?[a-z0-9_./-]{1,20}$"}
    for name, schema in {
        "read_file": closed({"path": path, "offset": {"type": "integer", "minimum": 0}, "limit": {"type": "integer",
            "minimum": 1, "maximum": 2000}}, ["path"]),
        "write_file": closed({"path": path, "content": {"type": "string", "maxLength": 60}}),
        "edit": closed({"path": path, "edits": {"type": "array", "minItems": 1, "maxItems": 2,
            "items": closed({"old": STRING | {"maxLength": 9}, "new": STRING | {"maxLength": 9}})}}),
        "shell": closed({"command": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 8},
            "minItems": 1, "maxItems": 4}, "timeout_ms": {"type": ["integer", "null"], "minimum": 1}}, ["command"]),
        "book_flight": closed({"from": {"type": "string", "pattern": "^[A-Z]{3}$"}, "to": {"type": "string",
            "pattern": "^[A-Z]{3}$"}, "date": {"type": "string", "format": "date"}, "cabin": {"enum": ["economy",
                "business"]}, "passengers": {"type": "integer", "minimum": 1, "maximum": 9}}, ["from", "to", "date"]),
        "set_color": closed({"rgb": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255},
            "minItems": 3, "maxItems": 3}}),
        "calendar": closed({"title": {"type": "string", "minLength": 1, "maxLength": 20}, "start": {"type": "string",
            "format": "date-time"}, "attendees": {"type": "array", "items": {"type": "string", "format": "email"},
                "maxItems": 2}, "repeat": {"oneOf": [NULL, closed({"every": {"type": "integer", "minimum": 1,
                    "maximum": 30}, "unit": {"enum": ["day", "week"]}})]}}, ["title", "start"]),
        "no_arguments": closed({}), "any_arguments": {"type": "object", "maxProperties": 2},
        "query": closed({"table": {"enum": ["users", "orders"]}, "where": {"type": "array", "maxItems": 2,
            "items": closed({"column": {"type": "string", "pattern": "^[a-z_]{1,9}$"}, "op": {"enum": ["=", "<", ">",
                "<=", ">=", "like"]}, "value": {"type": ["string", "number", "boolean", "null"], "maxLength": 6}})},
                    "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 100}}, ["table"]),
        "ip_rule": closed({"source": {"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string",
            "format": "ipv6"}]}, "port": {"type": "integer", "minimum": 1, "maximum": 65535}, "allow": BOOLEAN}),
        "one_of_actions": {"oneOf": [closed({"action": {"const": "move"}, "x": NUMBER, "y": NUMBER}),
            closed({"action": {"const": "say"}, "text": {"type": "string", "maxLength": 12}}),
                closed({"action": {"const": "stop"}})]},
    }.items():
        add(f"tool_{name}", schema)


for form in (tools, scalars, strings, numbers, arrays, records, applications, references, combinations):
    form()
with open(pathlib.Path(__file__).parent / "schemas.jsonl", "w", encoding="utf-8") as out:
    for label, body in SCHEMAS.items():
        out.write(json.dumps({"name": label, "schema": body}, separators=(",", ":")) + "\n")
print(len(SCHEMAS), "schemas")
