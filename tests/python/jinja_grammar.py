"""Random small chat templates, from a grammar of the language and a seed."""
import random

WORDS = ["", "a", "ab", "Hello, World", " x ", "\\n", "a\\n\\nb\\n", "it's", "é", "世界", "🎉x", "ßtraße", "1", "-12", "3.5", "user",
         "a,b,,c", "x.y", "A b-c", "\\t", "\\r\\n", "<b>&", "%s", "{}", "Ǆ", "ﬁ", "İ", "\\u00a0", "0x1f", "ⅷ", "²", "_", "True", "aXbX"]
NAMES = {"str": ["s", "u", "empty", "lines"], "int": ["n", "zero", "neg", "big"], "float": ["f", "tiny", "half"],
         "bool": ["t", "no"], "list": ["l", "names", "e", "mixed", "users", "messages", "nested.list"],
         "dict": ["d", "nested", "users[0]", "messages[0]"], "none": ["z"], "undefined": ["missing", "d.nope", "l[99]"]}
VARIABLES = {
    "s": "Hello, World", "u": "Grüße, 世界! 🎉", "empty": "", "lines": "a\n\nb\n c\n", "n": 3, "zero": 0, "neg": -7,
    "big": 12345678901234567890, "f": 2.5, "tiny": 1e-07, "half": 0.5, "t": True, "no": False, "z": None,
    "l": [3, 1, 2], "names": ["bob", "Al", "cy", "al"], "e": [], "mixed": [1, "a", None, 1.5, True, [2], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": 3, "items": 4}, "nested": {"x": {"y": [10, {"k": "v"}]}, "list": [[1, 2], [3], []]},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
              {"name": "Cy", "age": 30, "tags": ["y", "z"]}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U é\n"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None]}}}]}],
}
KINDS = ["str", "int", "float", "bool", "list", "dict", "none"]
FIELDS = ["name", "age", "tags", "role", "content", "a", "b", "x", "x.y", "0", "items", "nope"]
BARE_TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
              "callable", "true", "false", "lower", "upper", "escaped", "odd", "even"]
COMPARE_TESTS = ["eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=", "sameas"]
PERCENT = ["%s", "%5s|", "%-6s|", "%r", "%d", "%05d", "%+d", "% d", "%x", "%#X", "%o", "%e", "%.3f", "%g", "%08.2f", "%c", "%%", "%.2s",
           "%5.1f", "%i", "%#o", "%-8d|", "%(a)s", "%(b)d", "%s %s", "%*d"]
BRACES = ["{}", "{0}", "{:>8}", "{:<8}|", "{:^9}", "{:*^9}", "{:08.3f}", "{:,}", "{:_}", "{:+}", "{:x}", "{:#x}", "{:b}", "{:e}", "{:.2f}",
          "{:g}", "{:%}", "{!r}", "{!s:>5}", "{{}}", "{0} {0}", "{} {}", "{a}", "{:5}", "{:.3}", "{:d}", "{0[0]}", "{:n}", "{:#b}", "{:=+8}",
          "{:c}", "{:G}", "{:010,}", "{:.0f}", "{:s}", "{:-^+10.2e}", "{!a}"]


class Grammar:
    """Makes one template. Expressions mostly have the kind that their place wants, so that most of them render.

    Left out, as lmdeploy differs there: a scope that reads a caller's variable and later sets one of that name (jinja2 may
    lose the value), and the order of two groups of ``groupby``.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.locals = []  # (name, kind) that are set somewhere above
        self.macros = []  # (name, number of parameters)
        self.loops = 0
        self.count = 0

    # Small choices.

    def chance(self, share):
        return self.random.random() < share

    def pick(self, *choices):
        return self.random.choice(choices)

    def fresh(self, prefix="v"):
        self.count += 1
        return f"{prefix}{self.count}"

    def template(self):
        return "".join(self.statement(3) for _ in range(self.random.randint(1, 4)))

    # Literals.

    def text(self):
        quote = self.pick("'", '"')
        word = self.random.choice(WORDS)
        return quote + word.replace(quote, "\\" + quote) + quote

    def integer(self):
        return self.pick("0", "1", "2", "3", "-1", "-2", "10", "7", "1_000", "0x1F", "255", "5", "-3", "9007199254740993")

    def number(self):
        return self.pick("0.0", "1.0", "2.5", "-1.5", "1e3", "1.5e-7", "0.1", "1e16", "123456789.125", "2.675", "-0.0", "1E2", "0.5")

    def literal(self, kind):
        if kind == "str":
            return self.text()
        if kind == "int":
            return self.integer()
        if kind == "float":
            return self.number()
        if kind == "bool":
            return self.pick("true", "false", "True", "False")
        if kind == "none":
            return self.pick("none", "None")
        if kind == "list":
            items = [self.literal(self.pick("int", "str", "float", "bool")) for _ in range(self.random.randint(0, 3))]
            return "[" + ", ".join(items) + "]" if self.chance(0.7) else "(" + "".join(item + ", " for item in items) + ")"
        if kind == "dict":
            keys = self.random.sample(["a", "b", "c", "key", "é"], self.random.randint(0, 3))
            return "{" + ", ".join(f"'{key}': {self.literal(self.pick('int', 'str'))}" for key in keys) + "}"
        return self.random.choice(NAMES[kind])

    # Expressions.

    def expression(self, kind=None, depth=3):
        kind = kind or self.random.choice(KINDS)
        if self.chance(0.03):
            kind = self.random.choice(KINDS + ["undefined"])
        if depth <= 0 or self.chance(0.15):
            return self.leaf(kind)
        made = getattr(self, "make_" + kind, self.leaf_of(kind))(depth - 1)
        if self.chance(0.08):
            made = f"({made} if {self.expression('bool', depth - 2)} else {self.expression(kind, depth - 1)})"
        if self.chance(0.03):
            made = f"({self.expression(kind, depth - 1)} {self.pick('or', 'and')} {made})"
        if self.chance(0.03):
            made = f"({made})|default({self.expression(kind, depth - 2)}{self.pick('', ', true', ', boolean=true')})"
        return made

    def leaf_of(self, kind):
        return lambda depth: self.leaf(kind)

    def leaf(self, kind):
        fitting = [name for name, own in self.locals if own == kind]
        if fitting and self.chance(0.5):
            return self.random.choice(fitting)
        if kind == "undefined" or self.chance(0.5):
            return self.random.choice(NAMES[kind])
        return self.literal(kind)

    def atom(self, kind, depth):
        """In a form that a postfix or a filter may follow."""
        made = self.expression(kind, depth)
        return made if made.isidentifier() else f"({made})"

    def index(self):
        return self.pick("0", "1", "-1", "2", "-2", "9")

    def slice(self):
        bounds = [self.pick("", "0", "1", "2", "-1", "-2", "9", "-9") for _ in range(2)]
        step = self.pick("", "", "", ":", ":2", ":-1", ":-2", ":1")
        return f"[{bounds[0]}:{bounds[1]}{step}]"

    def make_str(self, depth):
        s = self.atom("str", depth)
        t = self.expression("str", depth - 1)
        u = self.expression("str", depth - 1)
        i = self.expression("int", 0)
        return self.random.choice([
            lambda: f"{s} + {t}", lambda: f"{s} ~ {self.atom(None, depth)}", lambda: f"{self.atom(None, depth)} ~ {s} ~ {i}",
            lambda: f"{s} * {self.index()}", lambda: f"{s}{self.slice()}", lambda: f"{s}[{self.index()}]",
            lambda: self.text_method(s, t, u, i), lambda: self.text_method(s, t, u, i), lambda: self.text_filter(s, t, u, i),
            lambda: self.text_filter(s, t, u, i), lambda: self.format(depth), lambda: self.join(depth), lambda: self.tojson(depth),
            lambda: f"{self.atom(None, depth)}|string", lambda: self.macro_call(depth), lambda: f"{self.text()} {self.text()}",
            lambda: f"messages[{self.index()}].{self.pick('role', 'content')}",
            lambda: f"strftime_now({self.pick('%d %b %Y', '%Y-%m-%d %H:%M', '%A %j %y %p %I', '%B%%', '%-d %e %c')!r})",
        ])()

    def text_method(self, s, t, u, i):
        return f"{s}." + self.pick(
            "upper()", "lower()", "strip()", "lstrip()", "rstrip()", f"strip({t})", f"lstrip({t})", f"rstrip({t})", "title()", "capitalize()",
            "swapcase()", "casefold()", f"replace({t}, {u})", f"replace({t}, {u}, {self.index()})", f"center({i})", f"ljust({self.index()}, '*')",
            f"rjust({self.index()}, '-')", "zfill(6)", f"removeprefix({t})", f"removesuffix({t})", f"expandtabs({self.index()})",
            f"split({t})[0]", "split()[-1]", f"partition({t})[{self.pick('0', '1', '2')}]", f"rpartition({t})[0]", "center(9, '_')",
            f"join({self.leaf('list')})", f"split({t})|last", f"center(width={i})", "expandtabs(tabsize=4)")

    def text_filter(self, s, t, u, i):
        return f"{s}|" + self.pick(
            "upper", "lower", "trim", f"trim({t})", "title", "capitalize", f"replace({t}, {u})", f"replace({t}, {u}, {self.index()})",
            "center(12)", f"center({i})", "indent", "indent(2)", "indent(2, true)", "indent(1, first=true, blank=true)", "indent('> ')",
            "indent(width=3, blank=true)", "truncate(7)", "truncate(5, true)", "truncate(6, true, '..')", "truncate(4, leeway=0, end='')",
            "truncate(9, false, '…', 2)", "striptags", "escape", "e", "forceescape", "urlencode", "string", "first", "last", "reverse", "safe",
            "list|join('|')", "safe|upper", "escape|replace('&', '+')", "trim|length|string", "sort|join", "unique|join", "e|e", "escape ~ '<'",
            f"default({t})", "wordcount|string")

    def number_spec(self):
        """What may stand between the colon or "%" and the type."""
        return "".join([self.pick("", "", "+", "-", " "), self.pick("", "", "#"), self.pick("", "0"), self.pick("", "1", "7", "8", "9", "20"),
                        self.pick("", "", ".0", ".1", ".3", ".8")])

    def one_format(self, depth):
        value = self.expression(self.pick("int", "float", "float", "bool", "str"), depth - 1)
        if self.chance(0.4):
            return f"{'%' + self.number_spec() + self.pick(*'diueEfFgGxXoscra')!r} % ({value},)"
        align = self.pick("", "", "<", ">", "^", "=", "*<", "é^", "0=", "->")
        spec = self.number_spec().replace(".", self.pick("", "", ",", "_") + ".", 1)
        return f"{'{:' + align + spec + self.pick('', *'deEfFgGn%xXobcs') + '}'!r}.format({value})"

    def format(self, depth):
        if self.chance(0.3):
            return self.one_format(depth)
        values = ", ".join(self.expression(self.pick("int", "float", "str", "int", "bool", "none"), depth - 1)
                           for _ in range(self.pick(1, 1, 1, 2)))
        if self.chance(0.5):
            spec = self.random.choice(PERCENT)
            if "(a)" in spec or "(b)" in spec:
                return f"({spec!r} % d)"
            return self.pick(f"({spec!r} % ({values},))", f"{spec!r}|format({values})")
        spec = self.random.choice(BRACES)
        if "a}" in spec:
            return f"{spec!r}.format(a={values.split(', ')[0]})" if ", " not in values else "'{a}'.format(a=1)"
        return f"{spec!r}.format({values})"

    def join(self, depth):
        items = self.atom("list", depth)
        return self.pick(f"{items}|join", f"{items}|join({self.text()})", f"users|join(', ', attribute='{self.random.choice(FIELDS)}')",
                         f"{items}|map('string')|join('-')", f"{items}|join(d='; ')")

    def tojson(self, depth):
        options = self.pick("", "", "(indent=2)", "(ensure_ascii=true)", "(separators=(',', ':'))", "(sort_keys=true)", "(indent='\\t')",
                            "(indent=0)", "(true)", "(indent=none)", "(sort_keys=true, indent=1)", "(indent=2, separators=(', ', ' : '))",
                            "(indent=true)", "(indent=-1)")
        return f"{self.atom(None, depth)}|tojson{options}"

    def make_int(self, depth):
        a, b, i = self.atom("int", depth), self.atom("int", depth - 1), self.index()
        return self.pick(
            f"{a} {self.pick('+', '-', '*', '//', '%')} {b}", f"{a} ** {self.pick('0', '1', '2', '3')}", f"-{a}", f"+{a}", f"{a}|abs",
            f"{self.atom(self.pick('list', 'str', 'dict'), depth)}|{self.pick('length', 'count')}", f"{self.atom('str', depth)}|int",
            f"{self.atom('str', depth)}|int({i})", f"{self.atom('float', depth)}|int", f"{self.atom('str', depth)}|int(0, 16)",
            f"{self.atom('str', depth)}.find({self.text()})", f"{self.atom('str', depth)}.rfind({self.text()}, {i})",
            f"{self.atom('str', depth)}.count({self.text()})", f"{self.atom('str', depth)}.index({self.text()}, {i}, 5)",
            f"{self.atom('list', depth)}.count({self.leaf('int')})", f"{self.atom('list', depth)}.index({self.leaf('int')})", "l|sum",
            f"l|{self.pick('max', 'min', 'first', 'last')}", "users|sum(attribute='age')", f"l[{i}]", f"l|sum(start={i})",
            f"{self.atom('str', depth)}|wordcount", f"{a}|round", "users|map(attribute='age')|max", f"{self.atom('float', depth)}|round|int",
            f"d.{self.pick('a', 'b', 'C')}", f"range({i})|length", f"{self.atom('int', depth)}|round(-1)",
            f"{self.atom('str', depth)}|int(base=8, default=5)", f"{self.atom('bool', depth)} + {a}", f"nested.x.y.{self.pick('0', '1.k')}")

    def make_float(self, depth):
        a, b = self.atom("float", depth), self.atom(self.pick("float", "int"), depth - 1)
        return self.pick(f"{a} {self.pick('+', '-', '*', '/', '//', '%')} {b}", f"{self.atom('int', depth)} / {b}", f"-{a}", f"{a}|round(2)",
                         f"{a}|round(1, '{self.pick('ceil', 'floor', 'common')}')", f"{a}|abs", f"{self.atom('str', depth)}|float",
                         f"{self.atom('int', depth)}|float", f"{a} ** 2", f"{self.atom('str', depth)}|float({self.leaf('float')})",
                         f"{self.atom('int', depth)} ** -1", f"{a}|round(method='floor')", f"[{a}, {b}]|max")

    def make_bool(self, depth):
        kind = self.random.choice(KINDS)
        a, b = self.atom(kind, depth), self.atom(kind, depth - 1)
        s = self.atom("str", depth - 1)
        return self.pick(
            f"{a} {self.pick('==', '!=', '<', '<=', '>', '>=')} {b}", f"{a} == {self.atom(None, depth)}", f"not {a}", f"{a} and {b}", f"{a} or {b}",
            f"{a} is {self.pick('', 'not ')}{self.random.choice(BARE_TESTS)}", f"{a} is {self.random.choice(COMPARE_TESTS)}({b})",
            f"{a} {self.pick('in', 'not in')} {self.atom('list', depth)}", f"{self.atom('str', depth)} in {s}",
            f"{self.atom('str', depth)} {self.pick('in', 'not in')} {self.atom('dict', depth)}", f"{a} is in {self.atom('list', depth)}",
            f"{self.atom('int', depth)} is divisibleby {self.pick('2', '3', '(2)')}", f"{s}.{self.pick('startswith', 'endswith')}({self.text()})",
            f"{s}.startswith(({self.text()}, {self.text()}), {self.index()})", f"{self.atom('int', 1)} < {self.atom('int', 1)} <= {self.atom('float', 1)}",
            f"{s}.{self.pick('isdigit', 'isalpha', 'isalnum', 'isspace', 'isupper', 'islower', 'isnumeric', 'isdecimal', 'istitle', 'isascii', 'isidentifier', 'isprintable')}()",
            f"{self.literal('str')} is {self.pick('filter', 'test')}", f"'{self.pick('upper', 'nope', 'odd', 'in')}' is {self.pick('filter', 'test')}",
            f"{self.expression('undefined', 0)} is {self.pick('defined', 'undefined', 'none', 'string', 'iterable', 'sequence')}",
            f"{self.literal('float')}.is_integer()", f"{a} is none or {b} is string", f"{a}|default(false)")

    def make_list(self, depth):
        a, s, i = self.atom("list", depth), self.atom("str", depth), self.index()
        field = self.random.choice(FIELDS)
        return self.random.choice([
            lambda: "[" + ", ".join(self.expression(None, depth) for _ in range(self.random.randint(0, 3))) + self.pick("", "") + "]",
            lambda: f"{a} + {self.atom('list', depth)}", lambda: f"{a}{self.slice()}", lambda: f"{a} * {self.pick('0', '1', '2')}",
            lambda: f"{s}.split({self.pick('', self.text(), self.text() + ', 1', 'none, 1')})", lambda: f"{s}.rsplit({self.text()}, 1)",
            lambda: f"{s}.splitlines({self.pick('', 'true')})", lambda: f"{s}|list", lambda: f"{a}|list",
            lambda: f"range({self.pick('3', '1, 4', '5, 0, -2', '0', '-3')})|list", lambda: f"{a}|reverse|list",
            lambda: f"{a}|sort", lambda: f"names|sort({self.pick('', 'reverse=true', 'case_sensitive=true', 'true, true')})",
            lambda: f"users|sort(attribute='{field}')", lambda: "users|sort(attribute='age,name')", lambda: f"{a}|unique|list",
            lambda: f"names|unique({self.pick('true', 'case_sensitive=false')})|list", lambda: f"users|unique(attribute='{field}')|list",
            lambda: f"users|map(attribute='{field}')|list", lambda: f"users|map(attribute='{field}', default={self.text()})|list",
            lambda: f"{a}|map('{self.pick('upper', 'int', 'string', 'length', 'abs', 'first', 'tojson')}')|list",
            lambda: f"{a}|map('{self.pick('default', 'replace', 'round', 'truncate')}', {self.pick('1', '2')})|list",
            lambda: f"{a}|{self.pick('select', 'reject')}|list",
            lambda: f"{a}|{self.pick('select', 'reject')}('{self.random.choice(BARE_TESTS)}')|list",
            lambda: f"{a}|{self.pick('select', 'reject')}('{self.random.choice(COMPARE_TESTS)}', {self.leaf('int')})|list",
            lambda: f"users|{self.pick('selectattr', 'rejectattr')}('{field}')|list",
            lambda: f"users|{self.pick('selectattr', 'rejectattr')}('{field}', '{self.random.choice(COMPARE_TESTS)}', {self.leaf('int')})|list",
            lambda: f"users|{self.pick('selectattr', 'rejectattr')}('{field}', '{self.random.choice(BARE_TESTS)}')|list",
            lambda: f"{a}|batch({self.pick('1', '2', '3')}{self.pick('', ', 0')})|list",
            lambda: f"{a}|slice({self.pick('1', '2', '3')}{self.pick('', ', none', ', 0')})|list",
            lambda: f"{self.atom('dict', depth)}.{self.pick('keys', 'values', 'items')}()|list", lambda: f"{self.atom('dict', depth)}|list",
            lambda: f"{self.atom('dict', depth)}|dictsort{self.pick('', '(true)', '(by=' + repr('value') + ')', '(reverse=true)')}",
            lambda: f"{self.atom('dict', depth)}|items|list", lambda: f"users|groupby('{field}')|map('list')|list",
            lambda: f"users|groupby('age')|map(attribute='{self.pick('grouper', 'list', '0')}')|list",
            lambda: f"users|groupby('{field}', default=0)|list", lambda: "(" + self.expression(None, depth) + ",)",
            lambda: f"users[{i}].tags", lambda: f"{self.atom('int', 0)}, {self.text()}" if False else f"({self.leaf('int')}, {self.text()})",
            lambda: f"{a}|select('in', {self.atom('list', depth - 1)})|list", lambda: f"{s}.partition({self.text()})",
            lambda: f"{a}.copy()", lambda: f"{a}|map('join', '+')|list",
        ])()

    def make_dict(self, depth):
        return self.random.choice([
            lambda: "{" + ", ".join(f"{self.text()}: {self.expression(None, depth)}" for _ in range(self.random.randint(0, 3))) + "}",
            lambda: f"dict({self.pick('', 'a=' + self.expression('int', depth - 1))})", lambda: f"dict({self.atom('dict', depth)}, x=1)",
            lambda: f"dict({self.atom('list', depth)}|map('list'))" if self.chance(0.2) else "dict([('k', 1), (2, 'w')])",
            lambda: f"users|{self.pick('first', 'last')}", lambda: "users|selectattr('age', 'gt', 26)|first", lambda: f"users[{self.index()}]",
            lambda: f"{self.atom('dict', depth)}.copy()", lambda: "{1: 'a', true: 'b', 1.5: none, 'k': [1]}", lambda: "nested.x",
            lambda: f"users|{self.pick('max', 'min')}(attribute='age')", lambda: self.literal("dict"),
        ])()

    def make_none(self, depth):
        return self.pick("none", f"{self.atom('dict', depth)}.get('nope')", "messages[2].content", "z", f"d.get({self.text()})")

    def macro_call(self, depth):
        if not self.macros:
            return self.leaf("str")
        name, parameters = self.random.choice(self.macros)
        given = [self.expression(None, depth - 1) for _ in range(self.random.randint(0, parameters))]
        if self.chance(0.2):
            given.append(f"{self.pick('a', 'b', 'c', 'zz')}={self.leaf('int')}")
        if self.chance(0.05):
            given.append(f"*{self.leaf('list')}")
        return f"{name}({', '.join(given)})"

    # Statements.

    def statement(self, depth):
        choices = [self.data, self.data, self.output, self.output, self.output, self.set]
        if depth > 0:
            choices += [self.if_block, self.for_block, self.for_block, self.set_block, self.macro, self.with_block, self.filter_block,
                        self.generation, self.call_block, self.namespace, self.raw, self.comment, self.recursive_loop, self.rare]
        if self.loops:
            choices += [self.loop_variable, self.loop_variable, self.loop_control]
        return self.random.choice(choices)(depth)

    def body(self, depth):
        """Statements whose names are not seen after them."""
        seen, macros = list(self.locals), list(self.macros)
        made = "".join(self.statement(depth - 1) for _ in range(self.random.randint(1, 3)))
        if self.chance(0.9):
            self.locals, self.macros = seen, macros
        return made

    def tag(self, inside):
        return "{%" + self.pick("", "", "", "", "-", "+") + f" {inside} " + self.pick("", "", "", "", "-", "+") + "%}" + self.pick("", "\n", "", " ")

    def data(self, depth):
        return self.pick("x", " ", "\n", "  ", "text\n", "\n\n", "\t", "é", " a b ", "{", "}", "\r\n", "# ", "  \n  ", "}}", "%}", "'", "{ {")

    def output(self, depth):
        return "{{" + self.pick("", "", "", "-") + f" {self.expression(None, 3)} " + self.pick("", "", "", "-") + "}}" + self.pick("", "|", "\n")

    def set(self, depth):
        kind = self.random.choice(KINDS)
        name = self.random.choice(self.locals)[0] if self.locals and self.chance(0.4) else self.fresh()
        made = self.tag(f"set {name} = {self.expression(kind, 3)}")
        if self.chance(0.1):
            other = self.fresh()
            made = self.tag(f"set {name}, {other} = {self.expression(kind, 1)}, {self.expression(None, 1)}")
        if name.startswith("v"):
            self.locals.append((name, kind))
        return made

    def if_block(self, depth):
        made = self.tag(f"if {self.expression('bool', 3)}") + self.body(depth)
        if self.chance(0.3):
            made += self.tag(f"elif {self.expression(None, 2)}") + self.body(depth)
        if self.chance(0.5):
            made += self.tag("else") + self.body(depth)
        return made + self.tag("endif")

    def for_block(self, depth):
        item = self.fresh()
        target, iterable, kind = self.random.choice([
            (item, self.expression("list", 2), self.random.choice(KINDS)), (item, "l", "int"), (item, "names", "str"), (item, "users", "dict"),
            (item, "messages", "dict"), (f"{item}, w", f"{self.atom('dict', 1)}.items()", "str"), (item, self.expression("str", 1), "str"),
            (f"{item}, w", "d|dictsort", "str"), (item, f"range({self.index()})", "int"), (item, f"{self.atom('list', 1)}|map('string')", "str"),
            (item, self.expression("dict", 1), "str"), (item, "l|reverse", "int"), (item, "users|groupby('age')", "group")])
        self.locals.append((item, kind))
        condition = f" if {self.expression('bool', 2)}" if self.chance(0.25) else ""
        self.loops += 1
        made = self.tag(f"for {target} in {iterable}{condition}") + self.body(depth)
        self.loops -= 1
        self.locals.remove((item, kind))
        if self.chance(0.25):
            made += self.tag("else") + self.body(depth)
        return made + self.tag("endfor")

    def loop_variable(self, depth):
        return "{{ " + self.pick(
            "loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.revindex0", "loop.previtem", "loop.nextitem",
            "loop.depth", "loop.depth0", "loop.cycle('a', 'b', 'c')", f"loop.changed({self.leaf('int')})", "loop.nextitem is defined",
            "loop.previtem is defined and loop.previtem", "'' if loop.last else ', '", "loop.nope", f"loop.changed({self.expression(None, 1)})") + " }}"

    def loop_control(self, depth):
        return self.tag(f"if {self.expression('bool', 1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif")

    def recursive_loop(self, depth):
        item = self.fresh()
        return (self.tag(f"for {item} in {self.pick('nested.list', '[[1, [2]], 3]', '[[], [[4]]]')} recursive") + "<" + self.loop_body(item)
                + "{% if " + item + " is iterable %}{{ loop(" + item + ") }}{% else %}{{ " + item + " }}{% endif %}>" + self.tag("endfor"))

    def loop_body(self, item):
        return self.pick("", "{{ loop.depth }}", "{{ loop.index }}", "{{ loop.last }}", "{% set q = loop.length %}{{ q }}")

    def set_block(self, depth):
        name = self.fresh()
        filters = self.pick("", "", " | upper", " | trim | length", f" | replace({self.text()}, {self.text()})", " | indent(2, true)")
        made = self.tag(f"set {name}{filters}") + self.body(depth) + self.tag("endset")
        self.locals.append((name, "str"))
        return made

    def macro(self, depth):
        name = self.fresh("m")
        parameters = self.random.randint(0, 3)
        names = ["a", "b", "c"][:parameters]
        required = self.random.randint(0, parameters)
        signature = ", ".join(p if i < required else f"{p}={self.leaf(self.pick('int', 'str'))}" for i, p in enumerate(names))
        outer, loops, self.loops = list(self.locals), self.loops, 0
        self.locals += [(p, self.random.choice(["str", "int", "list"])) for p in names]
        extra = self.pick("", "", "", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}", "{{ caller() if caller }}")
        made = self.tag(f"macro {name}({signature})") + self.body(depth) + extra + self.tag("endmacro")
        self.locals, self.loops = outer, loops
        self.macros.append((name, parameters))
        return made + self.pick("", "{{ " + self.macro_call(2) + " }}")

    def call_block(self, depth):
        name = self.fresh("m")
        return (self.tag(f"macro {name}(x)") + "[" + self.pick("{{ caller() }}", "{{ caller(x) }}", "{{ caller(1, 2) }}{{ x }}", "{{ caller }}" if False else "{{ x }}")
                + "]" + self.tag("endmacro") + self.tag(f"call{self.pick('', '(y)', '(y, w=3)')} {name}({self.expression(None, 1)})")
                + self.body(depth) + self.pick("", "{{ y }}", "{{ w }}") + self.tag("endcall"))

    def with_block(self, depth):
        a, b = self.fresh(), self.fresh()
        first = self.expression("int", 1)
        self.locals.append((a, "int"))
        made = self.tag(f"with {a} = {first}{self.pick('', f', {b} = {self.expression(None, 1)}')}") + self.body(depth) + self.tag("endwith")
        if (a, "int") in self.locals:
            self.locals.remove((a, "int"))
        return made

    def filter_block(self, depth):
        return self.tag(f"filter {self.pick('upper', 'trim', 'trim | upper', 'replace(' + self.text() + ', ' + self.text() + ')', 'indent(2)', 'e', 'title')}"
                        ) + self.body(depth) + self.tag("endfilter")

    def generation(self, depth):
        return self.tag("generation") + self.body(depth) + self.tag("endgeneration")

    def namespace(self, depth):
        name = self.fresh("ns")
        kind = self.random.choice(KINDS)
        made = self.tag(f"set {name} = namespace(x={self.expression(kind, 1)}{self.pick('', ', y=[]')})")
        made += self.tag(f"for i in {self.pick('l', 'e', 'names')}") + self.tag(f"set {name}.x = {self.pick(name + '.x ~ i', name + '.x', 'i', 'loop.index')}")
        made += self.tag("endfor")
        self.locals.append((f"{name}.x", kind))
        return made + "{{ " + f"{name}.{self.pick('x', 'y', 'z')}" + " }}"

    def raw(self, depth):
        return self.tag("raw") + self.pick("{{ x }}", " {% if %} ", "\n a ") + self.tag("endraw")

    def comment(self, depth):
        return "{#" + self.pick("", "", "-", "+") + " {{ no }} " + self.pick("", "", "-", "+") + "#}" + self.pick("", "\n")

    def rare(self, depth):
        return self.random.choice([
            lambda: "{{ raise_exception(" + self.expression("str", 1) + ") }}" if self.chance(0.3) else "", lambda: "{{ l.append(4) }}",
            lambda: "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
            lambda: "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b", lambda: "{% block b" + self.fresh() + " %}" + self.body(depth) + "{% endblock %}",
            lambda: "{% autoescape false %}" + self.body(depth) + "{% endautoescape %}", lambda: "{{ " + self.leaf("str") + "|nofilter }}",
            lambda: "{% if no %}{{ 1|nofilter }}{% endif %}", lambda: "{{ 1 if t else (2|nofilter) }}", lambda: "{{ 'x' is notest }}",
            lambda: "{{ " + self.expression(None, 1) + ", " + self.expression(None, 1) + " }}", lambda: "{{ namespace(a=1).a }}",
            lambda: "{% for i in range(3) %}{% set s = s ~ i %}{{ s }}{% endfor %}{{ s }}", lambda: "{{ self is defined }}",
            lambda: "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ loop.index }}{{ x }}{% endfor %}",
            lambda: "{% if t %}{% set in_if = 1 %}{% endif %}{{ in_if }}", lambda: "{{ d.items() }}{{ d.keys() }}", lambda: "{{ d['items'] }}",
            lambda: "{{ users|map(attribute='name') is iterable }}", lambda: "{{ (l|map('abs')) is sequence }}", lambda: "{{ dict }}" if False else "",
            lambda: "{{ 'a'|attr('upper') is callable }}", lambda: "{{ ''.__class__ }}", lambda: "{{ l.__len__ }}", lambda: "{{ d|attr('x') }}",
            lambda: "{% set x, y = " + self.expression("list", 1) + " %}{{ x }}{{ y }}", lambda: "{{ s|filesizeformat }}", lambda: "{{ n|filesizeformat(true) }}",
            lambda: "{{ (big * n)|filesizeformat }}", lambda: "{{ d|xmlattr }}", lambda: "{{ d|urlencode }}", lambda: "{{ lipsum is defined }}",
            lambda: "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}", lambda: "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ c }}{% endfor %}",
        ])()
