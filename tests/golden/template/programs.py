"""The programs of cases.json: pairs of a template and its variables."""

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " what is red \n"},
    {"role": "assistant", "content": "an apple"},
    {"role": "user", "content": "and blue?"},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <today> & \"tomorrow\" of a città",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Rom", "Köln"]}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALLS = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function",
             "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2, "exact": True, "scale": 1.5}}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nIt rains."},
]
VALUES = {
    "s": "Hello World", "e": "", "u": "straße ÄÖ ﬁ 日本 é", "n": 7, "z": 0, "f": 2.5, "b": True, "nn": None,
    "l": [3, 1, 2], "el": [], "ls": ["b", "A", "c", "a"], "d": {"x": 1, "y": [1, 2], "items": "it", "Z": 0},
    "objects": [{"n": "b", "k": 2, "o": {"p": [5]}}, {"n": "A", "k": 1}, {"n": "b", "k": 0, "o": {"p": [4]}}],
    "multi": "one\n two\n\nthree\r\nfour", "sp": " \t x y \n", "nested": [[1, [2, 3]], [[4], 5]],
    "messages": MESSAGES, "tools": [TOOL],
}
CASES = []


def add(*templates, **variables):
    for template in templates:
        CASES.append((template, variables or VALUES))


def out(*expressions, **variables):
    add(*["{{ %s }}" % expression for expression in expressions], **variables)


# ---- Whitespace ----
for left in ("", "-", "+"):
    for right in ("", "-", "+"):
        for before in ("a ", "a\n  ", "\n\t", "a\n \u00a0"):
            CASES.append((f"{before}{{%{left} if b {right}%}} \n x \n  {{%{left} endif {right}%}}\n y", {"b": 1}))
        CASES.append((f" a \n {{#{left} note {right}#}} \n b\n", {}))
        CASES.append((f" a \n {{%{left} raw {right if right != '+' else ''}%}} \n {{{{ b }}}} {{% c %}}\n {{%{left} endraw {right}%}} \n d", {}))
        if right != "+":
            CASES.append((f" a \n {{{{{left} 'x' {right}}}}} \n b", {}))
            CASES.append((f"{{{{{left} 'x' {right}}}}}\n\n b\n", {}))
add("a\r\nb\rc\n", "a\n\n", "a\r\n", "\n", "", "{% if 1 %}\r\nx\r\n{% endif %}\r\n", "{{ 'a\r\nb' }}", "a{# x #}\n\nb",
    "  {% set x = 1 %}  \n  {{ x }}  \n", "{% set x = 1 -%}\n\n\n  a", "a   \n\n{%- set x = 1 %}\nb", "{% if 1 %}a{% endif %}\n\nb",
    "  {# c #}  {% if 1 %}x{% endif %}", "{{ 1 }}\n{{ 2 }}\n{% if 1 %}\n{{ 3 }}\n{% endif %}\n{{ 4 }}", "\n\n{% if 1 %}x{% endif %}",
    "x{%- if 1 -%} y {%- endif -%} z", "{#- a -#} b {#- c -#}", "{#-#}x", "{##}x", "{# {{ x }} {% if %} #}y", "{{'}}'}}{{ '%}' }}",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n x{% endraw %}\ny", "{%raw%}{% if %}{%endraw%}", "{ {x} %} }} {% if 1 %}{%%}{% endif %}",
    "{ {x} %} }} #}", "a {{- ' b ' -}} c", "{{-1}}", "x {{-1}}", "x {{- 1}}", "{{ 1 -}} \n x", "{{+1}}", "\u00a0{{- 1 }}", "\u2003 {%- if 1 %}x{% endif %}",
    "{% if 1 +%}\n x{% endif %}", "a\n    {%+ if 1 %}x{% endif %}", "\t{% if 1 %}x{% endif %}\t\n", "é\n  {% if 1 %}ü{% endif %}\n", "{% if 1 %}{# c #}\n{% endif %}\nx",
    "{{ 'a' }}  {# c #}\n  b", "a\x0b{% if 1 %}b{% endif %}", "\x0c {% if 1 %}b{% endif %}", "{% if 1 %}\n\n{% endif %}x", "{{ '\n' }}{% if 1 %}x{% endif %}",
    "{{ x\n}}\n{%\nif 1\n%}\ny\n{%\nendif\n%}\nz")
# ---- Literals ----
out("1", "-1", "1_000", "0x1F", "0b101", "0o17", "00", "1.5", "1e3", "1.5e-7", "1E5", "1e16", "123456789012345680.0", "0.1+0.2", "1e-5", "0.0001", "100000.0", "-0.0",
    "1e308*10", "2.0", "1/3", "true", "True", "false", "none", "None", "''", "'a' 'b' \"c\"", r"'a\nb\tc\\d\'e'", r"'\x41\u00e9\U0001F600\101'", r"'\q\ '", "'a\\\nb'",
    "[1, 'a', none, 2.5, true, [2], {'k': (1,)}]", "(1, 2)", "(1,)", "()", "1, 2", "{'a': 1, 2: [3], none: 'x'}", "{}", "[]", "{'a': 1, 'a': 2}", "{1: 'a', 1.0: 'b', true: 'c'}",
    "[1, 2,]", "{'a': 1,}", "\"it's\"", "['it\\'s', \"a\\\"b\", 'a\\'\\\"']", "['\\n\\t\\r\\\\']", "['é\u200b\u00ad\x7f\u3042']", "9223372036854775807", "-9223372036854775807 - 1",
    "'{{ x }}'", "'%}'", "{'a': {'b': {'c': 1}}}", "\"\\x00a\"|length")
# ---- Operators ----
out("1 + 2 * 3", "(1 + 2) * 3", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7 / 2", "8 / 2", "2 ** 10", "2 ** -1", "2 ** 3 ** 2", "-2 ** 2", "2 ** 0.5", "7.5 // 2", "-7.5 % 2",
    "1 + 2.5", "true + 1", "'a' + 'b'", "'a' * 3", "3 * 'ab'", "[1] + [2]", "(1,) + (2,)", "[1, 2] * 2", "'a' ~ 1 ~ none ~ 2.0 ~ true", "1 ~ 2 + 3", "1 + 2 ~ 3", "10 - 2 - 3", "2 * 3 % 4",
    "1 / 0", "1 % 0", "1.0 // 0", "'a' + 1", "1 + 'a'", "none + 1", "[1] + (2,)", "-'a'", "- 3", "--3", "+3", "-f", "not true", "not not 0", "1 < 2 < 3", "1 < 3 < 2", "3 > 2 >= 2", "1 == 1.0", "1 == true",
    "'a' < 'b'", "'a' == 'a' != 'b'", "[1, 2] < [1, 3]", "(1, 2) == [1, 2]", "1 < 'a'", "none < 1", "none == none", "{'a': 1} == {'a': 1.0}", "[1, [2]] == [1, [2]]", "1 in [1, 2]", "4 not in [1, 2]",
    "'ell' in s", "1 in s", "'x' in d", "'q' in d", "1 in nn", "1 in 5", "3 in range(5)", "2.0 in range(5)", "'' in ''", "x in l", "1 in undefined_thing", "true and 'x'", "0 or 'y'", "'' or none", "e and 1 or 2",
    "1 and 2 and 3", "0 or '' or []", "not (1 and 0)", "not 1 in [2]", "1 if true else 2", "1 if false else 2", "1 if false", "(1 if false) is undefined", "1 if 0 else 2 if 0 else 3", "1 if s else 2, 3",
    "'a' if n > 5 else 'b' ~ 'c'", "n == 7 and f > 2", "9223372036854775807 * 1", "l | length > 2", "l|length + 1", "-1|abs", "-n|abs", "1 + -1|abs", "n is number and b", "not n is number", "n is not string",
    "7 % 2 == 1", "(1, 2) + (3,)", "'%s and %s' % ('a', 1)", "'%d%%' % 5", "'%5.2f|%-5d|%05d' % (3.14159, 42, 7)", "'%x %X %o' % (255, 255, 8)", "'%r' % 'a'", "'%(a)s' % {'a': 1}", "'%s' % [1]", "'%s' % (1, 2)", "'%s %s' % 1",
    "'%c' % 65", "'%e' % 12345.678", "'%g' % 0.00001", "'%+d' % 3", "'%s'", "1 == none", "[] == ()", "0 == false", "'' == none", "1.5 // 0.5", "5 // -2", "2 ** 62", "10 ** 3", "0 ** 0", "1e3 == 1000", "9007199254740993 == 9007199254740992.0",
    "1 < 2 == true", "1 in [1] == true", "[[1]] * 2", "'b' > 'a' and 'é' > 'z'")
# ---- Items, attributes, slices ----
out("s[0]", "s[-1]", "s[20]", "s[20] is undefined", "u[4]", "u[-1]", "u[2:6]", "s[:5]", "s[6:]", "s[::-1]", "s[::2]", "s[-3:-1]", "s[5:2]", "l[0]", "l[-1]", "l[5]", "l[::-1]", "l[1:]", "l[:-1]", "l[-10:10]", "l[5:1:-1]", "l[::0]",
    "d.x", "d['x']", "d.missing", "d['missing'] is defined", "d['items']", "d.items()|list", "d.keys()|list", "d.values()|list", "d.get('x')", "d.get('q')", "d.get('q', 5)", "d.get('nope') is none", "d.y[0]", "d.y.0", "d.y.1",
    "nested[0][1][0]", "missing", "missing.x", "missing['x']", "missing[0]", "missing()", "missing + 1", "missing ~ 'a'", "missing == missing2", "missing == none", "missing is defined", "missing.x is defined", "missing | default('dd')",
    "missing | length", "missing | list", "missing | upper", "d.missing.x", "nn.x", "nn.x is defined", "nn['x'] is defined", "n.x is defined", "s.x is defined", "(1, 2, 3)[1:]", "range(10)[2:5]|list", "range(10)[-1]",
    "'abc'.upper()[1]", "d['y'][1:]", "l['a'] is defined", "l[1.0] is defined", "d[[1]] is defined", "l[true]", "'x' in d.keys()", "d.items()[0] is defined", "d.__class__", "d.__class__ is defined", "d.__class__.x", "s.__len__()", "d._x is defined",
    "l.append(1)", "d.update({})", "d.pop('x')", "l.sort()", "{'_a': 1}._a", "d['items']()", "objects[0].o.p[0]", "objects[1].o.p is defined", "objects[1].o is defined", "s[1:3] + u[:2]", "''[0] is defined", "u[::-1]", "u[1:12:3]",
    "messages[0]['role']", "messages[-1].content", "messages[1:][0].role", "messages[9] is defined", "d.items() is iterable", "d.items() is sequence", "d.items()", "d.keys()", "d.values()", "d", "l", "nested", "{'a': none}", "l[none:2]")
# ---- Filters ----
out("s|upper", "s|lower", "u|upper", "u|lower", "u|capitalize", "u|title", "'hello wORLD-foo (bar) [x]'|title", "'hELLO wORLD'|capitalize", "sp|trim", "'xxaxx'|trim('x')", "s|length", "u|length", "l|length", "d|length", "n|length", "e|length", "l|count",
    "l|first", "l|last", "el|first", "el|last is undefined", "s|first", "s|last", "l|join", "l|join(', ')", "ls|join('-')", "objects|join(',', attribute='n')", "objects|map(attribute='k')|join", "l|sort", "ls|sort", "ls|sort(case_sensitive=true)",
    "l|sort(reverse=true)", "l|sort(true)", "objects|sort(attribute='k')|map(attribute='k')|list", "objects|sort(attribute='n,k')|map(attribute='k')|list", "l|reverse|list", "s|reverse", "u|reverse", "l|sum", "objects|sum(attribute='k')", "[1.5, 2]|sum", "el|sum",
    "l|max", "l|min", "ls|max", "ls|min(case_sensitive=true)", "objects|max(attribute='k')", "el|max is undefined", "[1, 1.0, 2, 'a', 'A']|unique|list", "ls|unique|list", "objects|unique(attribute='n')|map(attribute='k')|list", "n|string", "nn|string", "[1]|string",
    "missing|default", "missing|default(1)", "e|default('x')", "e|default('x', true)", "nn|default('x')", "nn|d('x', boolean=true)", "z|default(5, true)", "'42'|int", "'4.7'|int", "'abc'|int", "'abc'|int(-1)", "' 12 '|int", "'0x1f'|int(base=16)", "'1_0'|int", "f|int", "-2.7|int", "nn|int", "true|int",
    "'1.5'|float", "'x'|float", "'x'|float(2.5)", "n|float", "'1e3'|float", "'inf'|float", "nn|float", "-3|abs", "-2.5|abs", "'a'|abs", "2.5|round", "3.5|round", "2.567|round(2)", "2.561|round(1, 'ceil')", "2.569|round(2, 'floor')", "42|round", "1234|round(-2)", "-2.5|round", "2.675|round(2)", "2.5|round(method='ceil')",
    "s|replace('l', 'L')", "s|replace('l', 'L', 1)", "s|replace('', '-')", "12321|replace(2, 'x')", "s|replace(old='H', new='J')", "'abc'|list", "d|list", "range(3)|list", "d.items()|list", "d|items|list", "d|dictsort", "d|dictsort(true)", "d|dictsort(by='value')", "{'b': 2, 'a': 3}|dictsort(false, 'value')",
    "{'b': 2, 'a': 3}|dictsort(reverse=true)", "l|batch(2)|list", "l|batch(2, 'x')|list", "[1,2,3,4,5]|slice(2)|list", "[1,2,3,4,5]|slice(3, 'x')|list", "objects|groupby('n')|list|length", "objects|groupby('n')|map('first')|list", "objects|map(attribute='o.p.0', default=9)|list", "l|map('string')|list", "ls|map('upper')|join", "l|map('add')|list",
    "l|select('odd')|list", "l|select('greaterthan', 1)|list", "[0, 1, '', 'a', none]|select|list", "l|reject('odd')|list", "[0, 1, '']|reject|list", "objects|selectattr('k')|map(attribute='n')|list", "objects|selectattr('n', 'equalto', 'b')|list|length", "objects|selectattr('o', 'defined')|list|length", "objects|rejectattr('o', 'defined')|map(attribute='n')|list",
    "objects|selectattr('k', '>', 0)|map(attribute='k')|list", "objects|selectattr('n', 'in', ['A', 'q'])|list|length", "messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join('|')", "objects|rejectattr('n', 'eq', 'b')|list", "(objects|selectattr('k', 'equalto', 99)|list)|length == 0", "true if objects|selectattr('k', 'equalto', 99) else false", "objects|selectattr('k')|length",
    "multi|indent", "multi|indent(2)", "multi|indent(2, true)", "multi|indent(2, first=true, blank=true)", "multi|indent('>>')", "'a\n'|indent", "'a\n\nb\n'|indent(1, blank=true)", "''|indent", "''|indent(first=true)", "1|indent", "'foo bar baz qux'|truncate(9)", "'foo bar baz qux'|truncate(9, true)", "'foo bar baz qux'|truncate(11)", "'foo bar baz qux'|truncate(11, false, '...', 0)", "'foobarbazqux'|truncate(5)", "s|center(20)", "'ab'|center(5)", "'abc'|center(6)", "s|wordcount", "'a_b c-d é1'|wordcount",
    "'<a> & \"b\" \\'c\\''|e", "'<a>'|escape|escape", "'<a>'|safe", "'<a>'|e ~ '<b>'", "'<a>'|e + '<b>'", "'<a>'|safe + '<b>'", "'<a>'|forceescape", "'<a>'|e|upper", "'<a>'|e|length", "['<'|e]", "'<a>'|e|string", "('<a>'|e) is escaped", "'a b/c?d=é&'|urlencode", "{'a b': 'c&d', 'e': 1}|urlencode", "'%s-%s'|format('a', 2)", "'%(x)d'|format(x=3)", "' a  b '|striptags", "d|attr('x') is defined", "s|nosuch", "1 if true else s|nosuch", "s|upper|lower|title", "s|d|upper", "l|tojson|length", "'a'|upper ~ 'b'|upper",
    "'x'|items|list", "missing|items|list", "l|first|string + 'x'", "'abc'|batch(2)|map('join')|list", "[[3, 'a'], [1, 'b']]|sort", "[[1, 2], [3]]|sum(start=[])", "[1, 'a']|sort", "objects|map('tojson')|join(';')", "ls|map('replace', 'a', 'x')|list", "l|map('round', 1)|list", "[3.14159]|map('round', precision=2)|list", "ls|sort|first", "['x']|first|upper", "objects|map(attribute='n')|unique|list")
# ---- tojson ----
out("d|tojson", "l|tojson", "s|tojson", "u|tojson", "nn|tojson", "b|tojson", "f|tojson", "1e16|tojson", "[1e-7, 1.0, -0.0, 1e22]|tojson", "'a\"b\\\\c\\n\\t\\u0001/<>&\\''|tojson", "u|tojson(ensure_ascii=true)", "'😀'|tojson(ensure_ascii=true)", "d|tojson(indent=2)", "d|tojson(indent=4)", "nested|tojson(indent=1)", "{}|tojson(indent=2)", "[]|tojson(indent=2)", "{'a': []}|tojson(indent=2)", "d|tojson(separators=(',', ':'))", "d|tojson(separators=[',', ':'])",
    "d|tojson(sort_keys=true)", "{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson", "{(1, 2): 3}|tojson", "missing|tojson", "[missing]|tojson", "(1, 2)|tojson", "tools[0]|tojson", "tools|tojson(indent=2)", "d|tojson(indent='--')", "range(3)|tojson", "d.items()|tojson", "d|tojson(true)", "namespace(a=1)|tojson", "d|tojson(2)", "d|tojson(none, 2)", "'\\x7f\\x80\\u2028'|tojson", "('<'|e)|tojson", "d|tojson|safe", "{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true, indent=0)", "d|tojson(foo=1)", "l|map('string')|tojson")
# ---- Tests ----
out("n is odd", "n is even", "n is divisibleby 7", "n is divisibleby(3)", "n is defined", "missing is undefined", "nn is none", "n is none", "b is boolean", "b is true", "b is false", "z is false", "n is integer", "b is integer", "f is float", "f is integer", "b is number", "s is number", "s is string", "s is lower", "'abc' is lower", "'ABC' is upper", "'a1' is lower", "'1' is lower",
    "d is mapping", "l is mapping", "l is sequence", "s is sequence", "d is sequence", "n is sequence", "missing is sequence", "l is iterable", "s is iterable", "n is iterable", "missing is iterable", "range(3) is sequence", "l|map('string') is iterable", "l|map('string') is sequence", "n is sameas 7", "nn is sameas none", "b is sameas true", "1 is sameas true", "n is eq 7", "n is equalto(7)", "n is ne 7", "n is lt 8", "n is gt 8", "n is le 7", "n is ge 8", "n is greaterthan 3", "n is lessthan 3",
    "n is in [7]", "n is not in [7]", "'x' is in d", "s is callable", "s.upper is callable", "range is callable", "missing is callable", "'upper' is filter", "'nosuch' is filter", "'odd' is test", "s is escaped", "n is nosuch", "1 if true else (n is nosuch)", "'a' is odd", "n is not odd", "not n is odd", "n is odd and n is number", "n is divisibleby 0", "n is string or s is string", "nn is not none and nn.x", "l is string", "'' is string", "n is defined is true", "d.x is defined and d.x == 1")
add("{{ n is == 7 }}", "{{ n is none or n is integer }}", "{% if n is divisibleby 7 and true %}x{% endif %}", "{{ [1, none, 2]|select('none')|list }}", "{{ (l is iterable) and (l is not mapping) }}")
# ---- Methods ----
out("s.upper()", "s.lower()", "u.upper()", "u.lower()", "'ΑΣ ΣΑΣ'.lower()", "u.title()", "\"they're bill's\".title()", "u.capitalize()", "s.swapcase()", "'ß'.casefold()", "sp.strip()", "sp.lstrip()", "sp.rstrip()", "'xyaxy'.strip('xy')", "'\u00a0a\u3000'.strip()", "'aéa'.strip('a')", "'a,b,,c'.split(',')", "'a b  c '.split()", "' a b c '.split(none, 1)", "'a,b,c'.split(',', 1)", "'a,b,c'.rsplit(',', 1)", "' a b c '.rsplit(none, 1)", "'a,b'.split(sep=',')", "''.split()", "''.split(',')", "'abc'.split('')", "'a--b'.split('--')[-1]",
    "multi.splitlines()", "multi.splitlines(true)", "'a\\x0bb\\u2028c'.splitlines()", "'a\\n'.splitlines()", "''.splitlines()", "s.startswith('He')", "s.startswith('x')", "s.startswith(('x', 'H'))", "s.startswith('W', 6)", "s.endswith('ld')", "s.endswith(('a', 'd'))", "s.startswith(1)", "s.find('o')", "s.find('o', 5)", "s.find('q')", "u.find('日')", "s.rfind('o')", "s.index('W')", "s.index('q')", "s.count('l')", "s.count('')", "'aaaa'.count('aa')", "s.replace('l', 'L')", "s.replace('l', 'L', 1)", "s.replace('', '.')", "'-'.join(ls)", "'-'.join(l)", "','.join('abc')", "s.isalpha()", "'abc'.isalpha()", "'日本'.isalpha()", "'12'.isdigit()", "'²'.isdigit()", "'²'.isdecimal()", "''.isdigit()", "'a1'.isalnum()", "' '.isspace()", "''.isspace()", "'ab'.islower()", "'AB'.isupper()", "'Ab Cd'.istitle()", "'7'.zfill(3)", "'-7'.zfill(4)", "'ab'.ljust(4)", "'ab'.rjust(4, '.')", "'ab'.center(5, '*')", "'abc'.center(6, '*')", "'abc'.removeprefix('a')", "'abc'.removesuffix('bc')", "'abc'.removeprefix('x')", "'a=b=c'.partition('=')", "'a=b=c'.rpartition('=')", "'abc'.partition('x')", "'abc'.rpartition('x')",
    "'{} {}'.format('a', 1)", "'{0}{1}{0}'.format('a', 'b')", "'{x}-{y.z}-{w[0]}'.format(x=1, y={'z': 2}, w=[3])", "'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')", "'{:05d} {:+} {:,} {:x} {:#x} {:b}'.format(42, 5, 1234567, 255, 255, 5)", "'{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25)", "'{!r} {!s}'.format('a', 'b')", "'{{}} {}'.format(1)", "'{}'.format()", "'{:.3}'.format('abcdef')", "'{a}'.format(b=1)", "'{} {}'.format(none, [1])", "'{:d}'.format(true)", "'{:5}'.format(3)", "'{:5}'.format(2.5)", "'{:>10}'.format('日本')",
    "d.get('y')[0]", "d.copy()", "l.index(1)", "l.index(9)", "l.count(1)", "l.copy()", "(1, 2, 1).count(1)", "(1, 2).index(2)", "s.nosuch()", "s.encode is defined", "'a'.isascii()", "'é'.isascii()", "'abc'.isprintable()", "s.upper().lower().title()", "(s ~ 'x').upper()", "'a b c'.split(' ')|map('upper')|join('-')", "'x'.join(['a', 'b'])", "s.upper(1)", "s.split(',', maxsplit=1)", "'</think>' in '<think>a</think>b'", "('<think>a</think>b'.split('</think>')|last).lstrip('\\n')", "'<think>a</think>b'.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')")
# ---- Functions ----
out("range(5)|list", "range(2, 5)|list", "range(5, 0, -2)|list", "range(0)|list", "range(3)", "range(0, 6, 2)", "range(1, 2, 0)", "range(100001)|list|length", "range(100000)|list|length", "dict(a=1, b=2)", "dict({'a': 1}, b=2)", "dict([('a', 1)])", "namespace(a=1).a", "namespace(a=1)", "namespace({'a': 1}).a", "namespace().x is defined", "namespace(_a=1)", "raise_exception('no ' ~ n)", "raise_exception()", "strftime_now('%d %b %Y')", "strftime_now('%Y-%m-%d %H:%M:%S %A %j %%')", "strftime_now('')", "range('a')", "range(2.0)", "n()", "lipsum is defined", "dict(a=1).a", "range(3)|length", "range(10)|sum", "range(2) == range(0, 2)")
add("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{{ joiner()() }}{% set j = joiner() %}{{ j() }}{{ j() }}", "{{ cycler() }}")
# ---- if, for ----
add("{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}", "{% if z %}a{% elif n %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if d and l %}x{% endif %}", "{% if not missing is defined %}x{% endif %}",
    "{% for i in l %}{{ i }}{% endfor %}", "{% for i in el %}x{% else %}none{% endfor %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {% endfor %}", "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}-{{ b }}{% endfor %}", "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}/{{ loop.length }}{% else %}none{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}", "{% for i in missing %}x{% else %}y{% endfor %}", "{% for i in n %}{% endfor %}", "{% for i in nn %}{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% if j == 1 %}{% break %}{% endif %}{% endfor %}-{{ loop.index }};{% endfor %}", "{% for i in nested recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}", "{% for i in l recursive %}{{ loop.depth0 }}{% endfor %}", "{% for i in l %}{{ loop(l) }}{% endfor %}", "{% for i in l|sort %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in l|map('string') %}{{ i }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% for i in l %}{{ i }}{% endfor %}{{ i is defined }}", "{% set i = 9 %}{% for i in l %}{{ i }}{% endfor %}{{ i }}", "{{ loop is defined }}", "{% for loop in l %}{% endfor %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}", "{% break %}", "{% for x in l %}{% if x == 3 %}{% set y = x %}{% endif %}{{ y }}{% endfor %}", "{% for m in messages if m.role == 'user' %}{{ m.content|trim }}{% if not loop.last %}|{% endif %}{% endfor %}", "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}",
    "{% for i, x in enumerate(l) %}{% endfor %}", "{% for i in l: %}{{ i }}{% endfor %}", "{% for i in (1, 2) %}{{ i }}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l %}{{ loop }}{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for k, v in d|items %}{{ k }}{% endfor %}", "{% set ns = namespace(on=true) %}{% for i in l if ns.on %}{{ i }}{% set ns.on = false %}{% endfor %}", "{% for i in l %}{% if loop.index is divisibleby 2 %}{{ i }}{% endif %}{% endfor %}", "{% for item in l -%}\n  {{ item }}\n{%- endfor %}", "{% for a in l %}{% for b in l if b > a %}{{ a }}{{ b }} {% endfor %}{% endfor %}", "{{ l|first if l else 'x' }}{% for x in l[1:] %}{{ x }}{% endfor %}", "{% for i in l %}{{ loop.nosuch }}{% endfor %}", "{% for x in d.y %}{{ d.y.index(x) }}{% endfor %}")
# Long texts that share their beginning
add("{% set a = 'a' * 5000 + 'b' %}{% set x = a + 'x' %}{% set y = a + 'y' %}{{ x[-2:] }}{{ y[-2:] }}{{ x|length }}")
# `else` of a loop whose bodies all end with break or continue
add("{% for i in l %}{% break %}{% else %}x{% endfor %}", "{% for i in l %}{% continue %}{% else %}x{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{% else %}x{% endfor %}", "{% for i in l %}{% with x = i %}{% continue %}{% endwith %}{% else %}x{% endfor %}")
# What a filter does at its first item, what a slice refuses, what sorts without order
out("multi|max", "s|list|max", "(s|list)|min", "(1|items) is iterable", "(1|unique) is defined", "true if (none|batch(2)) else false", "d[::-1]", "n[1:]", "missing[1:]", "(l|map('string'))[1:]", "l['a':]", "messages|sort(attribute='k')|length", "l|truncate(5)", "l|truncate(1, leeway=0)", "'a%s' % missing", "'a' % missing", "'a' % l",
    "'{:_} {:5}'.format(true, false)", "(-0.5|round)|round(2, 'floor')", "1 if true else s|nosuch|upper", "s|nosuch if false else 2", "(s|nosuch if false else 2) + 1", "[s|nosuch] if false else 2", "s|nosuch ~ (1 if true else 2)", "'{:>3}{:<3}|'.format('é', '日')", "'%5s|%-5s|' % ('é', '日')", "'ŉ ǰ ΐ ﬃ'.upper()", "'ǆ ŉa ﬃx ᾳ'.title()", "'İI'.lower()", "'ªº ⅷ Ⓐ'.islower()", "'ⅷ'.isupper()", "'一二'.isdigit()", "'٣'.isdigit()", "'a\\x1fb c'.split()", "'a\\x85b'.splitlines()", "'\\x1ca '.strip()")
# ---- set, scopes ----
add("{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x | upper | replace('A', 'z') %}a{{ n }}b{% endset %}{{ x }}", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b %}cap{% endset %}{{ ns.a }}{{ ns.b }}", "{% set d.x = 2 %}", "{% set q.x = 2 %}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set x['a'] = 1 %}",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "{% if false %}{% set n = 5 %}{% endif %}{{ n }}", "{{ n }}{% set n = 5 %}{{ n }}", "{% for i in l %}{{ n }}{% set n = i %}{{ n }} {% endfor %}{{ n }}", "{% for i in l %}{% if i == 1 %}{% set n = i %}{% endif %}{{ n }} {% endfor %}{{ n }}", "{% for i in [1] %}{{ n }}{% endfor %}{% set n = 3 %}{{ n }}", "{% with x = 1, y = n %}{{ x }}{{ y }}{% set x = 2 %}{{ x }}{% endwith %}{{ x is defined }}", "{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% with %}{% set z2 = 1 %}{{ z2 }}{% endwith %}{{ z2 is defined }}", "{% with a, b = [1, 2] %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter upper|replace('L', 'x') %}a{{ s }}{% endfilter %}", "{% filter indent(2, true) %}a\nb{% endfilter %}", "{% filter nosuch %}{% endfilter %}",
    "{% set x = x|default(3) %}{{ x }}", "{% if not missing is defined %}{% set missing = 4 %}{% endif %}{{ missing }}", "{% set tools = none %}{{ tools }}", "{% set a = [1] %}{% set b = a %}{{ a == b }}{{ a is sameas b }}", "{% set x = 'a' %}{% set x = x ~ 'b' %}{% set x = x + 'c' %}{{ x }}", "{% print n, s %}", "{% set x = namespace(a=namespace(b=1)) %}{{ x.a.b }}", "{% set ns = namespace(a=1) %}{{ ns['a'] }}{{ ns.b is defined }}{{ ns is mapping }}", "{% set a, ns.b = 1, 2 %}{{ a }}", "{% set ns = namespace() %}{% set a, ns.b = 1, 2 %}{{ a }}{{ ns.b }}", "{% set x = [] %}{{ x }}{% set _ = x.append(1) %}", "{% if x is defined %}{% set y = 1 %}{% else %}{% set y = 2 %}{% endif %}{{ y }}", "{% set y %}{{ y }}x{% endset %}{{ y }}")
# ---- Macros ----
add("{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a, a2=a) %}{{ a2 }}{% endmacro %}{{ m(7) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}", "{% macro m() %}{{ caller() if caller else 'no' }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m() %}{{ n }}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}{% set y = 2 %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q is defined }}", "{% macro m(x) %} a{{ x }} {% endmacro %}{{ m(1)|trim }}{{ m(1) is string }}{{ m.name }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, **{'b': 2}) }}", "{% macro m(a=none) %}{{ a is none }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{% for i in l %}{{ loop.index }}{% endfor %}{% endmacro %}{{ m() }}", "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}", "{% macro m() %}x{% endmacro %}{{ m }}", "{% macro m(x) -%}\n  {{- x }}\n{%- endmacro %}{{ m('a') }}|", "{% set r = namespace(v='') %}{% macro m() %}{% set r.v = r.v ~ 'x' %}{% endmacro %}{{ m() }}{{ m() }}{{ r.v }}", "{% call(x) f() %}{% endcall %}", "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}",
    "{% macro tree(x) %}{% if x is mapping %}{ {% for k, v in x|dictsort %}{{ k }}:{{ tree(v) }} {% endfor %}}{% elif x is string %}'{{ x }}'{% elif x is iterable %}[{% for i in x %}{{ tree(i) }},{% endfor %}]{% else %}{{ x }}{% endif %}{% endmacro %}{{ tree(tools) }}")
# ---- generation ----
add("{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<e>{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}", "é{% generation %}日{% endgeneration %}x{%- generation -%} a {%- endgeneration %}b", "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "{% generation %}{% endgeneration %}", "{% generation %}", "{% for i in l %}{% generation %}{{ loop.index }}{{ i }}{% endgeneration %},{% endfor %}")
# ---- Errors ----
add("{% if %}{% endif %}", "{% if 1 %}", "{% endif %}", "{{", "{{ 1", "{% for i l %}{% endfor %}", "{% nosuch %}", "{{ }}", "{{ 1 2 }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{# x", "{% raw %}x", "{{ 'a }}", "{{ a. }}", "{{ a[ }}", "{{ a['x' }}", "{% set %}", "{% set x %}", "{{ x | }}", "{{ x is }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ f(a=1, a=2) }}", "{% else %}", "{% if 1 %}{% endfor %}", "{% macro %}{% endmacro %}", "{% do l.append(1) %}", "{{ 1 if }}", "{{ $ }}", "{{ a ! b }}", "{{ x is defined is string }}", "{{ 'a' is string is defined }}", "{% include 'x' %}", "{{ 1.2.3 }}", "{{ [1, 2 3] }}", "{{ {1} }}", "{{ a ? b : c }}", "{{ 12abc }}", "{{ `x` }}", "{{ x; y }}", "{{ lambda x: x }}", "{{ [x for x in l] }}", "{{ s[1:2:3:4] }}", "{{ d.'x' }}", "{{ not }}", "{% elif 1 %}", "{% if 1 %}{% else %}{% else %}{% endif %}", "{{ '\\ud83d' }}", "{% continue %}", "{{ x y }}")
# ---- Idioms of published templates, in programs of our own ----
# The last question is searched from the end; thoughts before it are left out; tools as lines of JSON.
THOUGHTS = """{%- macro turn(role, text) %}<{{ role }}>{{ text }}</{{ role }}>
{% endmacro -%}
{%- if tools %}
    {{- turn('system', (messages[0].content ~ '\\n' if messages[0].role == 'system' else '') ~ (tools | map('tojson') | join('\\n'))) }}
{%- elif messages[0].role == 'system' %}
    {{- turn('system', messages[0].content) }}
{%- endif %}
{%- set state = namespace(open=true, last=messages | length - 1) %}
{%- for m in messages[::-1] %}
    {%- set place = messages | length - 1 - loop.index0 %}
    {%- if state.open and m.role == 'user' and m.content is string and not m.content.startswith('<result>') %}
        {%- set state.open = false %}
        {%- set state.last = place %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
        {{- turn(m.role, content) }}
    {%- elif m.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<assistant>' }}
        {%- if thought and loop.index0 > state.last %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {%- generation %}
        {{- content }}
        {%- for call in m.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n' if content or not loop.first }}
            {{- '{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}' }}
        {%- endfor %}
        {{- '</assistant>\\n' }}
        {%- endgeneration %}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<results>' }}{% endif %}
        {{- '<result>' + content + '</result>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{ '</results>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
# A variable is made from others that may be absent; the date; the messages are cut and kept under the same name.
DATED = """{{- bos_token }}
{%- if my_tools is defined %}{% set tools = my_tools %}{% endif %}
{%- if not day is defined %}
    {%- set day = strftime_now('%d %b %Y') if strftime_now is defined else '1 Jan' %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- A comment between lines. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set rule = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set rule = '' %}
{%- endif %}
{{- 'Day: ' + day + '\\n\\n' ~ rule }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- '\\n' }}
    {%- endfor %}
{%- endif %}
{%- for m in messages %}
    {%- if not (m.role == 'tool' or 'tool_calls' in m) %}
        {{- '[' + m['role'] + ']' + m['content'] | trim + '[end]' }}
    {%- elif 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}
            {{- raise_exception('one call, please') }}
        {%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- call.name + '(' }}
        {%- for key, value in call.arguments | items %}
            {{- key + '="' ~ value ~ '"' }}
            {%- if not loop.last %}{{ ', ' }}{% endif %}
        {%- endfor %}
        {{- ')' }}
    {%- elif m.content is mapping or m.content is iterable %}
        {{- m.content | tojson }}
    {%- else %}
        {{- m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
{%- endif %}
"""
# Roles alternate; line feeds inside of texts in tags; content as parts.
ALTERNATING = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set before = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text']) + '

' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set before, rest = '', messages -%}
{%- endif -%}
{%- for m in rest -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('user and assistant must take turns') }}
    {%- endif -%}
    {{ '<' + ('model' if m['role'] == 'assistant' else m['role']) + '>
' + (before if loop.first else '') }}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for part in m['content'] -%}
            {{ '<image>' if part['type'] == 'image' else part['text'] | trim }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception('content of another type') }}
    {%- endif -%}
    {{ '</>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<model>
'}}
{%- endif -%}
"""
# All in one line.
ONE_LINE = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(tool=false, first=true, rule='') %}{%- for m in messages %}{%- if m['role'] == 'system' %}{%- if ns.first %}{% set ns.rule = ns.rule + m['content'] %}{% set ns.first = false %}{%- else %}{% set ns.rule = ns.rule + '\\n' + m['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.rule }}{%- for m in messages %}{%- if m['role'] == 'user' %}{%- set ns.tool = false -%}{{'<U>' + m['content']}}{%- endif %}{%- if m['role'] == 'assistant' and 'tool_calls' in m %}{%- for call in m['tool_calls'] %}{%- if m['content'] is none %}{{'<A>' + call['type'] + ':' + call['function']['name'] + '\\n' + call['function']['arguments']|tojson}}{%- endif %}{%- endfor %}{%- endif %}{%- if m['role'] == 'assistant' and 'tool_calls' not in m %}{% set content = m['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<A>' + content + '<E>'}}{%- endif %}{%- if m['role'] == 'tool' %}{%- set ns.tool = true -%}{{'\\n<T>' + m['content']}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.tool %}{{'<A>'}}{% endif %}"""
# A macro that calls itself writes a schema as types.
TYPES = """{%- macro write(schema, depth=0) -%}
    {%- if schema.type == 'array' -%}
        {{- write(schema['items'], depth) + '[]' if schema['items'] else 'any[]' }}
    {%- elif schema.type is iterable and schema.type is not string and schema.type[0] is defined -%}
        {{- schema.type | join(' | ') }}
    {%- elif schema.enum -%}
        {{- '"' + schema.enum | join('" | "') + '"' -}}
    {%- elif schema.type in ['integer', 'number'] -%}number
    {%- elif schema.type == 'object' -%}
        {{- '{\\n' }}
        {%- for name, each in schema.properties.items() -%}
            {{- '  ' * (depth + 1) ~ name ~ ('' if name in (schema.required or []) else '?') ~ ': ' }}
            {{- write(each, depth + 1) }}
            {%- if not loop.last -%}{{- ',' -}}{%- endif -%}
            {{- '\\n' }}
        {%- endfor -%}
        {{- '  ' * depth + '}' }}
    {%- else -%}{{- schema.type or 'any' }}{%- endif -%}
{%- endmacro -%}
{% for tool in tools or [] %}{%- set tool = tool.function %}{{- '// ' + tool.description + '\\ntype ' + tool.name + ' = ' }}{{ write(tool.parameters) }};
{% endfor %}{{ messages | length }}"""
# Keys of a mapping as tags; tojson with safe; a condition in a for.
TAGGED = """{% macro tags(mapping, known) %}
    {%- if mapping is mapping %}
        {%- for key in mapping if key not in known %}
            {%- set value = mapping[key] if mapping[key] is string else mapping[key] | tojson | safe %}
            {{- '\\n<' ~ key ~ '>' ~ value ~ '</' ~ key ~ '>' }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '\\n<name>' ~ tool.name ~ '</name>' }}
    {{- '\\n<about>' ~ (tool.description | trim) ~ '</about>' if tool.description is defined }}
    {%- for name, fields in tool.parameters.properties | items %}
        {{- '\\n<p>' ~ name }}{{- tags(fields, ['type', 'name']) }}
    {%- endfor %}
    {% set known = ['type', 'properties'] %}
    {{- tags(tool.parameters, known) }}
{%- endfor %}
{%- for m in messages if m.tool_calls is defined and m.tool_calls is iterable and m.tool_calls | length > 0 %}
    {%- for call in m.tool_calls %}{%- for name, value in call.function.arguments | items %}
        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
        {{- '<' + name + '>' + value + '</' + name + '>' }}
    {%- endfor %}{%- endfor %}
{%- endfor %}"""
# The last question is found by a filter and compared as a whole; JSON is cut and sewn.
SEWN = """{%- set rest = messages[1:] if messages[0]['role'] == 'system' else messages %}
{%- set questions = rest | selectattr('role', 'equalto', 'user') | list %}
{%- for m in rest %}
    {%- if m['role'] == 'user' %}
        {%- if tools is not none and tools is defined and m == questions[-1] %}
            {{- '[TOOLS][' }}
            {%- for tool in tools %}
                {%- for key, value in tool.function.items() if key != 'return' %}
                    {{- '"' + key + '": ' + ('"' + value + '"' if value is string else value | tojson) }}
                    {%- if not loop.last %}{{ ', ' }}{% endif %}
                {%- endfor %}
                {{- '}, ' if not loop.last else '}]' }}
            {%- endfor %}
        {%- endif %}
        {{- '[Q]' + m['content'] + '[/Q]' }}
    {%- elif m['tool_calls'] is defined and m['tool_calls'] is not none %}
        {%- for call in m['tool_calls'] %}
            {%- set text = call.function | tojson %}
            {%- if call.id is not defined or call.id | length < 3 %}{{ raise_exception('a call needs an id') }}{% endif %}
            {{- text[:-1] + ', "id": "' + call.id[-3:] + '"}' }}
        {%- endfor %}
    {%- elif m['role'] == 'assistant' %}
        {{- m['content'] + eos_token }}
    {%- elif m['role'] in ('tool', 'ipython') %}
        {{- '{"content": ' + m.content | string + '}' }}
    {%- else %}
        {{- raise_exception('a role that is not known: ' ~ m.role) }}
    {%- endif %}
{%- endfor %}
"""
CHATML = "{%- for m in messages %}\n    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
for program in (CHATML, THOUGHTS, DATED, ALTERNATING, ONE_LINE, TYPES, TAGGED, SEWN):
    for messages in (MESSAGES, CALLS, MESSAGES[1:]):
        for more in ({}, {"tools": [TOOL], "add_generation_prompt": True}, {"tools": None, "add_generation_prompt": True, "enable_thinking": False}):
            CASES.append((program, {"messages": messages, "bos_token": "<s>", "eos_token": "</s>", **more}))
