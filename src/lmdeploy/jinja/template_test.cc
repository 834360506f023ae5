#include "lmdeploy/jinja/template.h"

#include <gtest/gtest.h>

#include <map>

#include "lmdeploy/core/error.h"

namespace lmdeploy::jinja {
namespace {

std::tm fixed_clock() {  // 2025-07-26 14:05:09, a Saturday
  std::tm clock{};
  clock.tm_year = 2025 - 1900;
  clock.tm_mon = 6;
  clock.tm_mday = 26;
  clock.tm_hour = 14;
  clock.tm_min = 5;
  clock.tm_sec = 9;
  clock.tm_wday = 6;
  clock.tm_yday = 206;
  return clock;
}

std::string render(const std::string& source, const JsonObject& variables = {}) {
  return Template(source).render(variables, fixed_clock);
}

// The message of the Error that rendering or parsing ends in; its code goes to `code`.
std::string error_of(const std::string& source, ErrorCode* code = nullptr) {
  try {
    const std::string text = render(source);
    ADD_FAILURE() << source << " rendered as " << text;
    return {};
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  }
}

// Each feature of the language against Python's jinja2 (tests/data/jinja/make_cases.py).
TEST(Jinja, LanguageAsPythonHasIt) {
  const Json file = read_json_file(LMDEPLOY_SOURCE_DIR "/tests/data/jinja/cases.json");
  const JsonObject& variables = file.at("variables").get_object();
  std::map<std::string, int> num_per_feature;
  for (const Json& entry : file.at("cases").get_array()) {
    const JsonObject& test_case = entry.get_object();
    const std::string source(test_case.at("template").get_string());
    const std::string feature(test_case.at("feature").get_string());
    ++num_per_feature[feature];
    if (const Json* expected = test_case.if_contains("expected")) {
      std::string got;
      EXPECT_NO_THROW(got = render(source, variables)) << feature << ": " << source;
      EXPECT_EQ(got, std::string(expected->get_string())) << feature << ": " << source;
    } else {
      EXPECT_THROW(render(source, variables), Error)
          << feature << ": " << source << " fails with " << test_case.at("fails");
    }
  }
  for (const auto& [feature, count] : num_per_feature) EXPECT_GE(count, 10) << feature;
  EXPECT_GE(num_per_feature.size(), 15u);
}

TEST(Jinja, SyntaxErrorsSayWhereAndWhat) {
  ErrorCode code{};
  EXPECT_EQ(error_of("a\nb\n{{ x y }}", &code), "chat template, line 3: expected '}}', found 'y'");
  EXPECT_EQ(code, ErrorCode::kInvalidData);
  EXPECT_EQ(error_of("\n{% for x in y %}"),
            "chat template, line 2: expected a tag 'endfor', found the end of the template");
  EXPECT_EQ(error_of("{% nope %}"), "chat template, line 1: unknown tag, found 'nope'");
}

TEST(Jinja, F10_OwnWordsOfTheTemplate) {
  ErrorCode code{};
  const std::string message = error_of("x\n{{ raise_exception('no system role') }}", &code);
  EXPECT_EQ(message, "chat template, line 2: no system role");
  EXPECT_EQ(code, ErrorCode::kInvalidArgument);
}

TEST(Jinja, RuntimeErrorsNameTheLineInsideAMacro) {
  EXPECT_EQ(error_of("{% macro m(x) %}\n\n{{ x.y.z }}{% endmacro %}\n\n{{ m(1) }}"),
            "chat template, line 3: 'int object' has no attribute 'y'");
}

TEST(Jinja, ClockIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H:%M:%S %f %z|') }}"), "26 Jul 2025 14:05:09 000000 |");
}

TEST(Jinja, ClockWithMicrosecondsAndZone) {
  LocalTime now = fixed_clock();
  now.microsecond = 42;
  now.offset = "+0200";
  now.zone = "100% CEST";
  EXPECT_EQ(Template("{{ strftime_now('%f %z %Z %% %-d') }}").render({}, [&] { return now; }),
            "000042 +0200 100% CEST % 26");
}

TEST(Jinja, VariablesKeepTheirNumbers) {
  const JsonObject variables =
      parse_json(R"({"v": [1, 1.0, -5, 18446744073709551615, 1e-7, 1e400, true, null]})", "test")
          .get_object();
  EXPECT_EQ(render("{{ v }} {{ v|tojson }}", variables),
            "[1, 1.0, -5, 18446744073709551615, 1e-07, inf, True, None] "
            "[1, 1.0, -5, 18446744073709551615, 1e-07, Infinity, true, null]");
}

TEST(Jinja, AnIntegerOfAnImpossibleBase) {
  EXPECT_EQ(Template("{{ 'x'|int(base=99) }} {{ '7'|int(5, base=1) }}").render({}), "0 7");
}

TEST(Jinja, FiltersThatAreNotThereSaySo) {
  for (const char* name : {"urlize", "random", "pprint", "wordwrap"})
    EXPECT_NE(error_of(cat("{{ 'x'|", name, " }}")).find(name), std::string::npos);
}

TEST(Jinja, LiteralsOfTheSource) {
  const Template jinja("{% if m.role == 'user' %}tool{{ \"sys\" 'tem' }}{% endif %}");
  EXPECT_TRUE(jinja.has_literal("user"));
  EXPECT_TRUE(jinja.has_literal("sys"));
  EXPECT_FALSE(jinja.has_literal("tool"));
  EXPECT_TRUE(jinja::Template("{% if tools %}x{% endif %}").has_name("tools"));
  EXPECT_FALSE(jinja::Template("tools {{ 'tools' }}").has_name("tools"));
}

// What random templates showed to differ from jinja2 (tests/python/jinja_fuzz.py).
TEST(Jinja, CornersOfPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for i in [1, 2] %}{{ i }}{% break %}{% else %}none{% endfor %}", "1none"},
      {"{% for i in [1, 2] %}{{ i }}{% continue %}{% else %}none{% endfor %}", "12none"},
      {"{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}", "1"},
      {"{{ '{:c}|{:3d}|{:_}'.format(true, true, false) }}", "\x01|  1|0"},
      {"{{ -0.0|round(method='floor') }} {{ (-0.5)|round(0, 'ceil') }}", "0.0 0.0"},
      {"{{ 'a'.find('', 2) }} {{ 'abc'.count('', 2, 1) }} {{ 'a'.startswith('', 2) }}", "-1 0 False"},
      {"{{ 12345678901234567890|round(-1) }} {{ 15|round(-1) }} {{ -25|round(-1) }} {{ 7|round(-40) }}",
       "12345678901234567890 20 -20 0"},
      {"{% for i in [1] %}a{% filter upper %}b{% break %}{% endfilter %}{% endfor %}", "a"},
      {"{{ [{'a': 1}]|groupby('a')|tojson }}", "[[1, [{\"a\": 1}]]]"},
      {"{{ ([{'a': 2}, {'a': 1}]|groupby('a')|list)|sort }}", "[(1, [{'a': 1}]), (2, [{'a': 2}])]"},
      {"{{ ([{'a': 2}]|groupby('a')|list)[0].grouper }} {{ 1 / 9007199254740993 }}",
       "2 1.1102230246251564e-16"},
      {"{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740992.0 < 9007199254740993 }}",
       "False True"},
      {"{% set d = {} %}{{ d.items == d.items }} {{ d.items == d.keys }} {{ d.items == {}.items }}",
       "True False False"},
      {"{{ 'ⅷ_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ ''.isidentifier() }}", "True False False"},
      {"{{ (1, 2) in {1: 2} }} {{ {1: 2}.get((1,), 3) }} {{ {1: 2}[(1,)] }}", "False 3 "},
      {"{{ '10_'|int(5, 8) }} {{ '1_0'|float }} {{ '1_.5'|float(7) }} {{ '0x_f'|int(0, 16) }} {{ "
       "'010'|int(7, 0) }}",
       "5 10.0 7 15 10"},
      {"{{ 'b c '.split(none, 1) }} {{ ' b'.rsplit(none, 0) }}", "['b', 'c '] [' b']"},
      {"{{ ('a-b'|safe).partition('-') }}", "(Markup('a'), Markup('-'), Markup('b'))"},
      {"{{ ('ab'|escape)|list }}{{ ('ab'|escape)[0] is escaped }}{{ ('ab'|escape)|first is escaped }}",
       "['a', 'b']TrueFalse"},
      {"{{ ('ab'|escape)|last is escaped }}{{ ('ab'|escape)|batch(1)|list }}", "True[['a'], ['b']]"},
      {"{{ {'a': 1}|truncate(7) }}{{ [1, 2]|truncate(9) }}", "{'a': 1}[1, 2]"},
      {"{{ -0.0 // 2.5 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }}", "-0.0 3.0 -4.0"},
      {"{{ self is defined }} {{ self }} {{ lipsum is defined }}", "True <TemplateReference None> True"},
      {"{% if false %}{{ 1|nope }}{% endif %}{{ 1 if true else 2|nope }}", "1"},
      {"{% for i in [1] %}{% block a %}{{ i }}{% endblock %}{% block b scoped %}{{ i }}{% endblock %}{% "
       "endfor %}",
       "1"},
  };
  for (const auto& [source, want] : cases) EXPECT_EQ(render(source), want) << source;
  for (const char* source :
       {"{{ 'a'.center(width=3) }}", "{{ dict(nope, x=1) }}", "{{ '{:s}'.format(true) }}",
        "{{ 1e400|round(0, 'ceil') }}", "{% macro m() %}{{ 1|nope }}{% endmacro %}",
        "{% for i in [] %}{{ 1 is nope }}{% endfor %}", "{{ lipsum() }}",
        "{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{{ self.a() }}",
        "{{ '{:.3}'.format(7) }}", "{{ '{:+}'.format('a') }}", "{{ [(1, [])]|unique|list }}",
        "{% block a %}{% endblock %}{% block a %}{% endblock %}"})
    EXPECT_FALSE(error_of(source).empty()) << source;
}

// Each of these would take hours, all memory or the whole stack.
TEST(Jinja, NumberFormatsAsPythonHasThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ '{:08,}|{:010,}|{:07_}'.format(1, 2.5, 1) }}", "0,000,001|0,000,002.5|000_001"},
      {"{{ '{:_x}|{:#06x}|{:#_b}'.format(74565, 255, 21) }}", "1_2345|0x00ff|0b1_0101"},
      {"{{ '{:,}|{:08,}'.format(1e999, -1e999) }}", "inf|-0000inf"},
      {"{{ '{:.3}|{:.5}|{:.1}|{:#.3}'.format(100.0, 100.0, 5.0, 1e9) }}", "1e+02|100.0|5e+00|1.00e+09"},
      {"{{ '{:#g}|{:n}|{:z.1f}|{:F}'.format(999999.5, 1e-7, -0.01, 1e999) }}", "1.00000e+06|1e-07|0.0|INF"},
      {"{{ '{:05}|{:<05}|{:*^7}|{!a}'.format('ab', 7, 'é', 'é') }}", "ab000|70000|***é***|'\\xe9'"},
      {"{{ '%#06x|%.5d|%+ d|%a' % (255, -3, 4, '世') }}", "0x00ff|-00003|+4|'\\u4e16'"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source), expected) << source;
  for (const char* spec : {"{:,x}", "{:_c}", "{:.}", "{:+c}", "{:.2d}", "{:zd}", "{:q}", "{:5dd}"})
    EXPECT_NE(error_of(cat("{{ '", spec, "'.format(5) }}")), "") << spec;
  for (const char* spec : {"{:+}", "{:-}", "{:#}", "{:,}", "{:=5}", "{:d}"})
    EXPECT_NE(error_of(cat("{{ '", spec, "'.format('ab') }}")), "") << spec;
}

TEST(Jinja, HostileTemplatesEndInAnError) {
  const std::string many(100'000, '(');
  const std::map<std::string, std::string> hostile = {
      {"nested source", "{{ " + many},
      {"nested lists", "{{ " + std::string(100'000, '[')},
      {"unary chain", "{{ " + std::string(100'000, '-') + "1 }}"},
      {"tall expression",
       [] {
         std::string sum = "{{ 1";
         for (int i = 0; i < 100'000; ++i) sum += " + 1";
         return sum + " }}";
       }()},
      {"nested tags",
       [] {
         std::string tags;
         for (int i = 0; i < 100'000; ++i) tags += "{% if 1 %}";
         return tags;
       }()},
      {"loops",
       "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}"
       "{% endfor %}{% endfor %}{% endfor %}"},
      {"recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"loop recursion", "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
      {"repetition", "{{ 'a' * 10 ** 15 }}"},
      {"list repetition", "{{ [0] * 10 ** 15 }}"},
      {"doubling",
       "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"},
      {"wide tree",
       "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}"
       "{{ n.l }}"},
      {"equal trees",
       "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}"
       "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}"},
      {"deep value",
       "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}"},
      {"deep generator",
       "{% set n = namespace(g=[1]) %}{% for i in range(9999) %}{% set n.g = n.g|map('abs') %}"
       "{% endfor %}{{ n.g|list }}"},
      {"circle", "{% set n = namespace() %}{% set n.n = [n, n] %}{{ n }}"},
      {"width", "{{ '%999999999d' % 1 }}"},
      {"padding", "{{ 'x'.center(10 ** 12) }}"},
      {"indent", "{{ ('\\n' * 10000)|indent(10 ** 12, blank=true) }}"},
      {"replacement", "{{ ('a' * 10 ** 6).replace('', 'b' * 10 ** 6) }}"},
      {"output", "{% set s = 'x' * 10 ** 6 %}{% for i in range(99999) %}{{ s }}{% endfor %}"},
      {"overflow", "{{ 10 ** 1000 }}"},
      {"exponential macros",
       "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"},
      {"join", "{{ (['a' * 10 ** 6] * 1000)|join('b' * 10 ** 6) }}"},
      {"format width", "{{ '{:>{}}'.format(1, 10 ** 9) }}"},
      {"format precision", "{{ '{:.999999999f}'.format(1.5) }}"},
      {"zfill", "{{ '1'.zfill(10 ** 12) }}"},
      {"tabs", "{{ ('\\t' * 1000).expandtabs(10 ** 12) }}"},
      {"json indent", "{{ [[1]]|tojson(indent=10 ** 12) }}"},
      {"range", "{{ range(10 ** 12) }}"},
      {"batch", "{{ [1]|batch(10 ** 12, 0)|list }}"},
      {"slices", "{{ [1]|slice(10 ** 12)|list }}"},
      {"namespaces",
       "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = namespace() %}{% endfor %}"
       "{% endfor %}"},
  };
  for (const auto& [what, source] : hostile) EXPECT_FALSE(error_of(source).empty()) << what;
}

// What ends in an error there must leave no trace: circles of namespaces and macros are freed (asan build).
TEST(Jinja, CirclesAreFreed) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = [n] %}{{ n.me|length }}"), "1");
  EXPECT_EQ(render("{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}"), "12");
  EXPECT_EQ(
      render(
          "{% set n = namespace() %}{% for i in [1] %}{% set n.loop = loop %}{% endfor %}{{ n.loop.index }}"),
      "1");
  EXPECT_FALSE(
      error_of("{% macro m() %}{{ nope.x }}{% endmacro %}{% set n = namespace(m=m) %}{{ m() }}").empty());
}

TEST(Jinja, InvalidUtf8InTheSourceIsRepaired) {
  EXPECT_EQ(render("a\xff{{ 'b\xc3' }}"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(Jinja, DeepRecursionThatPythonAllowsWorks) {
  EXPECT_EQ(
      render(
          "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(100) }}"),
      "end");
}

}  // namespace
}  // namespace lmdeploy::jinja
