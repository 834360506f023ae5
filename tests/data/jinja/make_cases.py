#!/usr/bin/env python3
"""Writes cases.json: small templates and what Python's jinja2, set up as transformers does, makes of them.

    pip install jinja2==3.1.6 && python3 make_cases.py
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from jinja_reference import environment

V = {
    "s": "Hello, World", "u": "Grüße, 世界! 🎉", "n": 3, "f": 2.5, "t": True, "z": None, "e": [], "empty": "",
    "l": [3, 1, 2], "names": ["bob", "Al", "cy"], "d": {"b": 1, "a": 2, "C": 3}, "nested": {"x": {"y": [10, {"k": "v"}]}},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
              {"name": "Cy", "age": 30, "tags": ["y", "z"]}],
    "big": 12345678901234567890, "neg": -7, "tiny": 1e-07, "one": 1.0, "quote": "it's \"q\"", "lines": "a\n\nb\n c\n",
    "html": "<a href='x'>&</a>", "items": {"items": 1}, "messages": [
        {"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}],
}

CASES = {
    "white space": [
        "a\n{% if t %}\nb\n{% endif %}\nc\n", "  {% if t %}x{% endif %}\n  y", "  {%+ if t %}x{% endif %}",
        "{% if t -%}\n  x  {%- endif %} y", "{% if t +%}\nx{% endif %}", "x {{- s -}} y", "x \n {{- s -}} \n y",
        "{# c #}\nx", "  {# c #}\nx", "x {#- c -#}  y", "{#+ c +#}\nx", "a\r\nb\rc\n", "a\n\n", "\n\na", "{{ s }}\n",
        "{{ s }}\n\nx", "\t{% set q = 1 %}\n{{ q }}", "a {% set q = 1 %}\nb", "{% raw %}{{ x }}{% endraw %}\nz",
        "{% raw -%}  {{ x }}  {%- endraw %}  z", "  {% raw %} a\n  {% endraw %}\nb", "{%- raw %} {% x %} {% endraw -%} ",
        "{% for i in l %}\n  {{ i }}\n{% endfor %}\nend", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "{{-1}}",
        "{{ '}}' }}{{ {'a': {'b': 1}}.a.b }}", "{{ '%}' }}", "\u00a0{{- s }}", "x\u2003{%- if t %}y{% endif %}", "{",
        "{ {", "}}", "%}", "#}", "{{ '\\n' }}|", "{# a {{ b }} #}c", "{%if t%}x{%endif%}", "a{% if t %}\n\n\nb{% endif %}",
        "{% if t %}{% endif %}\n{{ s }}", "  {{ s }}", "\n  {%- if t %}\n  x\n  {%- endif %}\n",
    ],
    "literals": [
        "{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }}", "{{ 'a' 'b' \"c\" }}",
        "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "{{ [1, 'a', none, 1.5, true] }}", "{{ (1,) }} {{ () }} {{ (1, 2) }}",
        "{{ {'a': 1, 2: 'b', none: [], 1.5: {}} }}", "{{ 'a\\tb\\'c\\\\d\\x41\\u00e9\\U0001F600\\101' }}", "{{ 'a\\qb' }}", "{{ 1, 2 }}",
        "{{ 1.e }}", "{{ 12345678901234567890123 }}", "{{ 1.0e100 }} {{ 123456789012345678.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }}",
        "{{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}", "{{ [1, 2,] }} {{ {'a': 1,} }}", "{{ \"it's\" }} {{ ['it\\'s', '\"', '\\'\"'] }}",
        "{{ ['é', '\\u200b', '\\x00', '\\x7f', '\\n\\t\\r\\\\', '\\ue000', '😀'] }}", "{{ {1: 'a', True: 'b', 1.0: 'c'} }}",
    ],
    "operators": [
        "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
        "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2.0 ** 3 }}", "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 4 }} {{ 6 / 2 }}",
        "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 3 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' * -1 }}|",
        "{{ 'a' ~ 1 ~ none ~ 1.5 ~ [1] ~ undefined_name ~ true }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
        "{{ 1 == true }} {{ 0 == false }} {{ none == false }} {{ '1' == 1 }} {{ [] == () }} {{ {'a': 1} == {'a': 1.0} }}",
        "{{ 2 in l }} {{ 5 not in l }} {{ 'a' in d }} {{ 'ell' in s }} {{ '' in s }} {{ 1 in () }} {{ 'x' in undefined_name }}",
        "{{ t and n }} {{ none or 'x' }} {{ not t }} {{ not none and 1 }} {{ '' and 1 }}|", "{{ not 1 == 2 }} {{ not 'a' in d }}",
        "{{ 'yes' if t else 'no' }} {{ 'yes' if z }}| {{ 'a' if z else 'b' if z else 'c' }}", "{{ -n }} {{ +n }} {{ --n }} {{ -f }}",
        "{{ big + 1 }} {{ big * big }} {{ -big }} {{ big // 10 }} {{ big % 1000 }}", "{{ true + true }} {{ true * 3 }} {{ -true }}",
        "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' + none }}", "{{ none + 'a' }}", "{{ [1] + (2,) }}", "{{ 'a' < 1 }}", "{{ none < 1 }}", "{{ 1 / 0 }}",
        "{{ 1 // 0 }}", "{{ 1.0 % 0 }}", "{{ 1 in none }}", "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ [] in d }}", "{{ d + d }}", "{{ -s }}", "{{ {} < {} }}",
        "{{ n is odd and not n is even }}", "{{ 1 + 1 ~ 1 + 1 }}", "{{ 10 - 2 - 3 }} {{ 100 / 10 / 2 }}", "{{ s == 'Hello, World' != false }}",
        "{{ 5 % 2.5 }} {{ 5.5 // -2 }} {{ -5.5 // 2 }} {{ 1e308 * 10 }} {{ 2 ** 0.5 }}", "{{ n.x }}|{{ n['x'] }}|", "{{ 0 or [] or none }}",
    ],
    "undefined": [
        "{{ nope }}|", "{{ nope.x }}", "{{ nope['x'] }}", "{{ nope() }}", "{{ nope + 1 }}", "{{ 1 + nope }}", "{{ nope ~ 'x' }}", "{{ nope == none }} {{ nope == nope2 }}",
        "{{ nope is defined }} {{ nope is undefined }} {{ s.nope is defined }} {{ d.nope is defined }} {{ l[9] is defined }}", "{% for x in nope %}a{% else %}b{% endfor %}",
        "{{ nope|length }} {{ nope|list }} {{ nope|default('d') }} {{ nope|d }}| {{ nope|upper }}| {{ nope|join }}|", "{{ d.nope }}| {{ d['nope'] }}| {{ l[9] }}| {{ s[99] }}|",
        "{{ d.nope.x }}", "{{ nope|int }}", "{{ nope < 1 }}", "{{ -nope }}", "{{ 'x' if nope else 'y' }} {{ not nope }}", "{{ nope|tojson }}", "{{ [nope] }} {{ {'a': nope} }}",
        "{{ z.x }}|", "{{ z.x.y }}", "{{ z['x'] }}|", "{{ z[0] }}|{{ n[0] }}|", "{{ nope[1:] }}", "{{ z[1:] }}", "{{ d[1:] }}", "{{ d[[]] }}|", "{{ s.strip.x }}|", "{{ nope|items|list }}",
        "{{ nope is iterable }} {{ nope is sequence }} {{ nope is mapping }} {{ nope is string }} {{ nope is none }} {{ nope is callable }}",
    ],
    "access": [
        "{{ nested.x.y[1].k }} {{ nested['x']['y'][0] }} {{ nested.x.y.1.k }}", "{{ l[0] }} {{ l[-1] }} {{ l[true] }} {{ l.0 }}", "{{ s[0] }} {{ s[-1] }} {{ u[2] }} {{ u[-1] }}",
        "{{ l[1:] }} {{ l[:2] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-2:] }} {{ l[5:] }} {{ l[:-5] }} {{ l[:] }}", "{{ s[1:5] }} {{ s[::-1] }} {{ s[-5:] }} {{ u[1:4] }} {{ u[::-1] }} {{ u[-3:] }} {{ u[::3] }}",
        "{{ (1, 2, 3)[1:] }} {{ range(10)[2:8:3]|list }} {{ range(5)[1] }} {{ range(5)[-1] }}", "{{ items.items is defined }} {{ items['items'] }}", "{{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 7) }}",
        "{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }}", "{{ d.keys() }} {{ d.items() }}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{{ l[none:2] }}", "{{ l['x':2] }}",
        "{{ l[::0] }}", "{{ l[1.0] }}|", "{{ d[none] }}|", "{{ {none: 1}[none] }} {{ {1: 'a'}[1.0] }} {{ {1: 'a'}[true] }}", "{{ messages[0]['role'] }} {{ messages[-1].content }}", "{{ s.__class__ }}|", "{{ s.__class__() }}",
        "{{ d['get'] is defined }} {{ s['upper']() }}", "{{ s[10**20] }}| {{ s[:10**20] }} {{ s[-10**20:3] }}", "{{ l[n - 1] }} {{ l['a'] }}|", "{{ s[1, 2] }}|",
        "{{ l.append(1) }}", "{{ l.append is defined }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ l.pop() }}", "{{ l.sort() }}", "{{ l.index(1) }} {{ l.count(2) }}", "{{ l.index(9) }}", "{{ d.copy() }}", "{{ d.x() }}",
    ],
    "control flow": [
        "{% if z %}a{% elif n == 3 %}b{% else %}c{% endif %}", "{% if z %}a{% elif e %}b{% else %}c{% endif %}", "{% if z %}a{% endif %}|", "{% for i in [] %}x{% else %}none{% endfor %}",
        "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
        "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}",
        "{% for i in range(5) if i is odd %}{{ i }}:{{ loop.index }}/{{ loop.length }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% for i in l %}{% for j in 'ab' %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}|{% endfor %}", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}",
        "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'héé' %}{{ c }}.{% endfor %}", "{% for i in 5 %}{% endfor %}",
        "{% for i in none %}{% endfor %}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for i in l %}{% set n = n + 1 %}{{ n }} {% endfor %}{{ n }}",
        "{% for node in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}{{ node.v }}@{{ loop.depth }}/{{ loop.depth0 }}{% if node.c %}({{ loop(node.c) }}){% endif %}{% endfor %}",
        "{% for i in l %}{{ loop|length }}{% endfor %}", "{% for i in l if i > 1 %}{{ loop.revindex }}{{ loop.nextitem is defined }} {% endfor %}", "{% for i in [1,2] %}{{ loop(l) }}{% endfor %}",
        "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for m in messages %}{% if loop.first and m.role != 'system' %}X{% endif %}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}",
        "{% set ns = namespace(found=false) %}{% for i in range(9) if not ns.found %}{{ i }}{% if i == 3 %}{% set ns.found = true %}{% endif %}{% endfor %}", "{% for x in l %}{% if loop.last %}{{ loop.index }}{% endif %}{% endfor %}",
        "{% for i in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ i }} {% endfor %}", "{% for i in [1] %}{% endfor %}{{ loop is defined }}", "{% for i in '' %}{% else %}{{ i is defined }}{% endfor %}", "{% if 1 %}{% if 0 %}{% else %}x{% endif %}{% endif %}",
        "{% for i in range(3) recursive %}{{ i }}{% else %}e{% endfor %}", "{% generation %}{{ s }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    ],
    "set and scope": [
        "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ s }}{% endset %}{{ a }}|{{ a|length }}", "{% set a | upper %}x{{ s }}{% endset %}{{ a }}", "{% set a | trim | replace('H', 'J') %} {{ s }} {% endset %}{{ a }}",
        "{% if t %}{% set a = 1 %}{% endif %}{{ a }}", "{% for i in l %}{% set a = i %}{% endfor %}{{ a is defined }}", "{% set ns = namespace() %}{% set ns.x = 1 %}{% set ns.y = [ns.x] %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}",
        "{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns }}", "{% set ns = namespace({'k': 1}, j=2) %}{{ ns.k }}{{ ns.j }}{{ ns['k'] }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{% set a = 1 %}{% set a = a + 1 %}{{ a }}",
        "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}", "{% set ns = namespace(a=1) %}{% set ns.a, q = 5, 6 %}{{ ns.a }}{{ q }}",
        "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | indent(2) %}a\na{% endfilter %}", "{% filter trim %}{% set q = 1 %} {{ q }} {% endfilter %}{{ q is defined }}", "{% set true = 1 %}", "{% set s = s|upper %}{{ s }}", "{% set x = namespace %}{{ x(a=1).a }}",
        "{% block b %}{{ s }}{% endblock %}", "{% block b %}{{ s }}{% endblock b %}", "{% autoescape false %}{{ html }}{% endautoescape %}", "{% set a = namespace(v=namespace(w=1)) %}{{ a.v.w }}", "{% set loop = 3 %}{{ loop }}", "{% for i in l %}{% if i == 3 %}{% set q = 'x' %}{% endif %}{{ q }}|{% endfor %}",
    ],
    "macros": [
        "{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(b=1, a=2) }} {{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ s }}{% endcall %}", "{% macro m(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) m(l) %}[{{ x }}]{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
        "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% set q = 1 %}{% macro m() %}{{ q }}{% endmacro %}{% set q = 2 %}{{ m() }}", "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q is defined }}",
        "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}]", "{% macro m() %} x {% endmacro %}{{ m()|trim }}|{{ m() is string }}|{{ m() ~ 1 }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
        "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m is callable }} {{ m.name }} {{ m.arguments }}", "{% macro m(a, b) %}{{ a }}{{ b is defined }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 5}) }}",
        "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(t) %}{% if t.c is defined %}{{ t.v }}({% for x in t.c %}{{ m(x) }}{% endfor %}){% else %}{{ t.v }}{% endif %}{% endmacro %}{{ m({'v': 1, 'c': [{'v': 2}, {'v': 3, 'c': []}]}) }}", "{% macro m() %}{{ s }}{% endmacro %}{% for s in 'ab' %}{{ m() }}{% endfor %}",
        "{% macro m(n) %}{% for i in range(n) %}{{ i }}{% endfor %}{% endmacro %}{% for i in l %}{{ m(i) }}/{{ i }} {% endfor %}", "{% macro m() %}{{ nope.x }}{% endmacro %}{{ m() }}",
    ],
    "tests": [
        "{{ s is string }} {{ n is number }} {{ f is float }} {{ n is integer }} {{ t is boolean }} {{ t is integer }} {{ t is number }} {{ d is mapping }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }}",
        "{{ z is none }} {{ t is true }} {{ t is false }} {{ 1 is true }} {{ 4 is even }} {{ 4 is odd }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }}", "{{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 3 is gt 4 }} {{ 1 is in [1] }} {{ 'a' is lessthan 'b' }}",
        "{{ 'ab' is lower }} {{ 'AB' is upper }} {{ 'Ab' is upper }} {{ '1' is lower }} {{ n is lower }}", "{{ s is sameas s }} {{ t is sameas true }} {{ z is sameas none }} {{ 1 is sameas true }}", "{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}", "{{ range is callable }} {{ s.upper is callable }} {{ s is callable }}",
        "{{ (s|safe) is escaped }} {{ s is escaped }}", "{{ n is not none }} {{ not n is none }} {{ n is not odd }}", "{{ n is nope }}", "{{ n is defined and n is odd }} {{ n is defined or nope }}", "{{ (1, 2) is sequence }} {{ range(3) is sequence }} {{ range(3) is iterable }} {{ d.items() is iterable }} {{ d.items() is sequence }}",
        "{{ n is divisibleby }}", "{{ s is divisibleby 2 }}", "{{ 2.0 is even }} {{ 3.0 is odd }}", "{{ namespace() is mapping }} {{ none is mapping }} {{ 1.5 is integer }} {{ big is integer }}", "{{ x is defined }}{% set x = none %}{{ x is defined }}",
    ],
    "text filters": [
        "{{ s|upper }} {{ s|lower }} {{ s|capitalize }} {{ 'hello wORLD-foo (bar) [baz]'|title }} {{ u|upper }} {{ 'ß'|upper }} {{ 'ΑΣ ΑΣΑ Σ'|lower }}", "[{{ '  x '|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ '\u00a0x\u2003'|trim }}] [{{ 5|trim }}]", "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 'aaa'|replace('', '-') }} {{ 123|replace('2', 'x') }}",
        "{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ l|count }}", "{{ n|length }}", "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, blank=true) }}|{{ lines|indent('> ', first=true) }}|{{ ''|indent }}|", "{{ n|indent }}", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '..', 0) }}", "{{ s|truncate(2) }}",
        "[{{ 'a'|center(5) }}] [{{ 'ab'|center(5) }}] [{{ 'a'|center(4) }}]", "{{ 'a b  c_d é1'|wordcount }}", "{{ 'a b/c?é&'|urlencode }} {{ {'a b': 'c/d', 'e': 1}|urlencode }} {{ [('x', 'y z')]|urlencode }}", "{{ '<b>x</b> <!-- c -->  &amp; y'|striptags }}", "{{ html|escape }} {{ html|e }} {{ html|safe }} {{ html|forceescape }} {{ html|e|e }}",
        "{{ '<s>' + ('<b>'|safe) }} {{ ('<b>'|safe) + '<s>' }} {{ ('<b>'|safe) ~ '<s>' }} {{ ('%s'|safe) % '<' }} {{ ('<'|safe).join(['>', 'a']) }} {{ ('<a>'|safe).upper() + '<' }} {{ ('<'|safe)[0] + '<' }} {{ ('<x>'|safe|trim) + '<' }}",
        "{{ '%s-%d-%05.1f-%x-%r' % ('a', 3, 2.55, 255, 'q') }} {{ '%s' % n }} {{ '%%' % () }} {{ '%(a)s' % {'a': 1} }} {{ '%-5s|%5s|' % ('a', 'b') }} {{ '%+d' % 5 }} {{ '%c' % 65 }} {{ '%e' % 12345.678 }} {{ '%g' % 0.00001 }}", "{{ '%s %s' % 'a' }}", "{{ '%d' % 'a' }}", "{{ '%s' % (1, 2) }}",
        "{{ '%s, %s'|format('a', 1) }} {{ '%(x)s'|format(x=2) }}", "{{ '{} {} {0}'.format(1, 2) }}", "{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}-{y.k}-{z[0]}'.format(x=1, y={'k': 2}, z=[3]) }}", "{{ '{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:,} {:.2f} {:x} {:#x} {:b} {:e} {:%}'.format(42, 1234567, 3.14159, 255, 255, 5, 12345.6789, 0.25) }}",
        "{{ '{!r} {!s}'.format('a', 'b') }} {{ '{{}}'.format() }} {{ '{:{}}|'.format('a', 4) }}", "{{ '{'.format() }}", "{{ '{}'.format() }}", "{{ '{nope}'.format() }}", "{{ {'a': 1, 'c': none, 'd': '<'}|xmlattr }}", "{{ 1|string + 'a' }} {{ none|string }} {{ [1]|string }} {{ true|string }}", "{{ s|reverse }} {{ u|reverse }}", "{{ s|first }} {{ s|last }}",
        "{{ 123|upper }} {{ none|lower }} {{ true|title }}", "{{ s|nope }}", "{{ 'x' if true else s|nope }}", "{{ s|upper(1) }}", "{{ s|replace }}", "{{ s|replace(new='x', old='H') }}", "{{ html|tojson }}",
    ],
    "number filters": [
        "{{ -3|abs }} {{ (-3)|abs }} {{ (-2.5)|abs }} {{ true|abs }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 42.55|round(1) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, 'ceil') }} {{ 1234|round(-2) }} {{ 5|round }} {{ 2.675|round(2) }}", "{{ '42'|int }} {{ '42.7'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '0x1f'|int(base=16) }} {{ 'ff'|int(0, 16) }} {{ none|int }} {{ ' 12 '|int }} {{ true|int }} {{ '1_000'|int }} {{ '-5'|int }} {{ '1e3'|int }}",
        "{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2.0) }} {{ 3|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ ' 2 '|float }} {{ '1e-3'|float }} {{ none|float }}", "{{ 1000|filesizeformat }} {{ 1|filesizeformat }} {{ 500|filesizeformat }} {{ 1500000|filesizeformat }} {{ 2048|filesizeformat(true) }}", "{{ s|abs }}", "{{ s|round }}", "{{ f|round|int }}", "{{ l|sum }} {{ [1.5, 2]|sum }} {{ users|sum(attribute='age') }} {{ [[1], [2]]|sum(start=[]) }}", "{{ ['a']|sum }}",
        "{{ 5.0 }} {{ 5.0|int }} {{ 10 ** 18 }} {{ 1.0 * 10 ** 18 }} {{ 0.1 }} {{ 1/3 }} {{ 100000000000000000000.0 }} {{ 1.5e300 }}", "{{ (2.0).is_integer() }}", "{{ 'inf'|float|int }}",
    ],
    "sequence filters": [
        "{{ l|sort }} {{ l|sort(true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name', reverse=true)|map(attribute='name')|join(',') }}", "{{ ['a', 1]|sort }}", "{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='value', reverse=true) }}", "{{ d|dictsort(by='x') }}", "{{ l|dictsort }}",
        "{{ [1, 1, 2, 'a', 'A']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }}", "{{ l|min }} {{ l|max }} {{ names|min }} {{ names|max(case_sensitive=true) }} {{ users|min(attribute='age') }} {{ []|min }}|", "{{ l|join(', ') }} {{ l|join }} {{ users|join('+', attribute='name') }} {{ d|join('-') }} {{ 'abc'|join('.') }} {{ [none, 1.0, true]|join(' ') }}",
        "{{ l|first }} {{ l|last }} {{ []|first }}| {{ []|last }}| {{ d|first }} {{ d|last }}", "{{ l|reverse|list }} {{ l|map('string')|reverse|list }} {{ (1, 2)|reverse|list }}", "{{ l|map('string')|last }}", "{{ l|map('string')|first }}", "{{ l|batch(2)|list }} {{ l|batch(2, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}", "{{ l|list }} {{ 'abc'|list }} {{ d|list }} {{ range(3)|list }}", "{{ n|list }}",
        "{{ names|map('upper')|list }} {{ names|map('replace', 'b', 'x')|list }} {{ users|map(attribute='name')|list }} {{ users|map(attribute='nope', default='D')|list }} {{ users|map(attribute='tags.0')|list }} {{ [[1, 2], [3]]|map('length')|list }} {{ [[1, 2], [3]]|map('first')|list }}", "{{ l|map|list }}", "{{ l|map('nope')|list }}", "{{ none|map('upper')|list }}",
        "{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1]|reject|list }} {{ l|select('gt', 1)|list }} {{ l|select('in', [1, 3])|list }}", "{{ users|selectattr('age', 'eq', 30)|map(attribute='name')|list }} {{ users|rejectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ users|selectattr('tags')|map(attribute='name')|list }} {{ users|selectattr('nope', 'defined')|list }} {{ users|selectattr('nope', 'undefined')|list|length }}",
        "{{ l|select('nope')|list }}", "{{ l|selectattr|list }}", "{% set g = l|select('odd') %}{{ g|list }}{{ g|list }}", "{{ 'yes' if l|select('gt', 9) else 'no' }} {{ l|map('string') is iterable }} {{ l|map('string') is sequence }}", "{{ l|map('string')|length }}", "{{ users|groupby('age')|map('list')|list|length }} {% for k, g in users|groupby('age') %}{{ k }}:{{ g|map(attribute='name')|join(',') }};{% endfor %} {% for g in users|groupby('age') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }};{% endfor %}", "{{ names|groupby('x', default='q')|length }}",
        "{{ d|items|list }}", "{{ l|items|list }}", "{{ none|items|list }}", "{{ [3, 1]|sort|join }}{{ s|list|sort|join }}", "{{ d.values()|sum }} {{ d.keys()|sort }} {{ d.items()|sort }}", "{{ l|attr('count') is callable }} {{ d|attr('a') is defined }} {{ d|attr('keys') is defined }} {{ namespace(a=1)|attr('a') }}", "{{ z|default('x') }} {{ z|default('x', true) }} {{ ''|default('x', true) }} {{ 0|d(5) }} {{ nope|default }}|",
        "{{ [1, [2, [3]]]|string }} {{ [[1, 2], [3, 4]]|map('last')|list }} {{ [[1, 2], [3, 4]]|map('sum')|sum }}", "{{ [[]]|unique|list }}", "{{ [(1, 2), (1, 2)]|unique|list }}", "{{ l|sort(attribute='x') }}", "{{ [true, 2, 1.5]|sort }} {{ [[2, 1], [1, 5]]|sort }}", "{{ [none, 1]|sort }}", "{{ dict(a=1)|length }}",
    ],
    "tojson": [
        "{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ z|tojson }} {{ t|tojson }} {{ n|tojson }} {{ f|tojson }}", "{{ one|tojson }} {{ tiny|tojson }} {{ big|tojson }} {{ 1e22|tojson }} {{ 123456789.123|tojson }}", "{{ nested|tojson(indent=2) }}", "{{ {'a': [], 'b': {}, 'c': [1]}|tojson(indent=4) }}", "{{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(indent=1, separators=(',', ' : ')) }}", "{{ d|tojson(indent='\\t') }}",
        "{{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ '😀'|tojson(true) }}", "{{ '\\n\\t\\r\\b\\f\\x01\\x7f\\u2028\"\\\\/'|tojson }}", "{{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ nope|tojson }}", "{{ range(3)|tojson }}", "{{ d.keys()|tojson }}", "{{ l|map('string')|tojson }}", "{{ s.upper|tojson }}", "{{ namespace()|tojson }}", "{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}", "{{ users|tojson }}", "{{ 'inf'|float|tojson }} {{ 'nan'|float|tojson }}", "{{ d|tojson(indent=0) }}", "{{ nested|tojson|safe }}{{ nested|tojson(indent=4)|indent(8) }}",
    ],
    "methods": [
        "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ 'abcba'.rstrip('ab') }}|{{ 'é x é'.strip('é ') }}|", "{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}", "{{ 'a'.split('') }}", "{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }}",
        "{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.startswith('lo', 3) }} {{ s.endswith('Hel', 0, 3) }}", "{{ s.startswith(1) }}", "{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('世') }} {{ s.find('o', 5) }} {{ s.index('W') }} {{ s.count('o') }} {{ s.count('') }}", "{{ s.index('zz') }}", "{{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.replace('', '-', 2) }}",
        "{{ s.upper() }} {{ s.lower() }} {{ 'hELLO wORLD'.title() }} {{ \"it's they're\".title() }} {{ 'hELLO'.capitalize() }} {{ s.swapcase() }} {{ 'ß'.casefold() }} {{ 'ǆ'.title() }}", "{{ ','.join(['a', 'b']) }} {{ ''.join([]) }} {{ ','.join('abc') }}", "{{ ','.join([1]) }}", "{{ 'a'.center(5, '*') }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'ab'.center(5, '*') }} {{ 'a'.center(4, '*') }}",
        "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'a'.partition('-') }} {{ 'a'.rpartition('-') }}", "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }}", "{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ ' '.isspace() }} {{ ''.isalpha() }} {{ 'Ab Cd'.istitle() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ 'ab'.isascii() }} {{ 'é'.isascii() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'a\n'.isprintable() }}",
        "{{ 'a\tb'.expandtabs(4) }}|{{ 'ab\tc'.expandtabs() }}|", "{{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }} {{ [1, 2, 3].index(3, 1) }}", "{{ s.nope() }}", "{{ l.strip() }}", "{{ n.strip() }}", "{{ z.strip() }}", "{{ s.strip(1) }}", "{{ s.strip('a', 'b') }}", "{{ d.get() }}", "{{ d.get([]) }}", "{{ s.upper().lower().title() }}", "{{ 'a b'.split()[1] }} {{ 'x=1'.split('=')|last }} {{ s.split(', ')|first|upper }}",
    ],
    "globals": [
        "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(10, 0, -3)|list }} {{ range(3) }} {{ range(1, 3) }} {{ range(0, 9, 2) }} {{ range(0)|list }} {{ range(5)|length }} {{ 3 in range(5) }}", "{{ range(100001) }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ dict(a=1, b='x') }} {{ dict({'a': 1}, b=2) }} {{ dict([('k', 'v')]) }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
        "{{ raise_exception('own words: ' ~ n) }}", "{% if false %}{{ raise_exception('x') }}{% endif %}ok", "{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %B %Y, %A %b %a %j %p %I %y %%') }}", "{{ namespace(value=1, self=2).value }}", "{{ cycler() }}", "{{ namespace(1) }}", "{{ range(2)|sum }}",
    ],
    "sandbox and syntax": [
        "{{ s.__len__ }}|", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% if false %}{% include 'x' %}{% endif %}ok", "{{", "{% if %}", "{% if t %}", "{% endif %}", "{% for %}", "{{ 1 + }}", "{{ a b }}", "{% nope %}", "{{ 'a }}", "{{ (1 }}", "{{ 1) }}", "{# a", "{% raw %}x", "{{ {'a' 1} }}", "{{ x.1y }}", "{{ f(a=1, 2) }}", "{% set %}", "{% macro %}{% endmacro %}", "{{ $ }}", "{{ a ? b }}",
        "{% break %}", "{{ x is }}", "{{ x | }}", "{% for x in %}{% endfor %}", "{% set x = %}", "{% call x %}{% endcall %}", "{% block a %}{% endif %}", "{{ 'a' is string is string }}", "{{ loop.index }}", "{{ 1 if }}", "{% elif t %}", "{% else %}", "{{ [1, 2 }}", "{{ a.b. }}", "{{ not }}", "{{ *a }}", "{% do x %}", "{{ lambda }}|",
    ],
}


def main():
    env = environment()
    lines = []
    for feature, templates in CASES.items():
        for template in templates:
            case = {"feature": feature, "template": template}
            try:
                case["expected"] = env.from_string(template).render(**V)
            except Exception as error:
                case["fails"] = f"{type(error).__name__}: {error}"
            lines.append(json.dumps(case, ensure_ascii=True))
    text = '{"variables": ' + json.dumps(V) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    pathlib.Path(__file__).with_name("cases.json").write_text(text)


if __name__ == "__main__":
    main()
