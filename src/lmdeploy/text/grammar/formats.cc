// Sources: RFC 3339 (dates, times), RFC 9562 (uuid), RFC 5321 (email, without quoted names), RFC 1123
// (hostname), RFC 3986 (uri), RFC 4291 (ipv6), ISO 8601 (duration), RFC 6901 (json-pointer). Each pattern is
// a subset of its format.
#include "lmdeploy/text/grammar/formats.h"

namespace lmdeploy::grammar {
namespace {

constexpr std::string_view kYear = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
constexpr std::string_view kLeapYear =
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
constexpr std::string_view kTime = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?";
constexpr std::string_view kZone = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

std::string text(std::initializer_list<std::string_view> parts) {
  std::string joined;
  for (const std::string_view part : parts) joined += part;
  return joined;
}

std::string date() {
  return text({"(?:", kYear, "-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|",
               "(?:0[13578]|1[02])-31)|", kLeapYear, "-02-29)"});
}

std::string ipv4() { return text({kByte, "(?:\\.", kByte, "){3}"}); }

// Eight groups; or "::" for those that are left out between the first `before` and at most 7 - `before`
// others.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string out = "(?:(?:" + group + ":){7}" + group;
  for (int before = 0; before <= 7; ++before) {
    const std::string head = before == 0 ? ":"
                             : before == 1
                                 ? group + ":"
                                 : group + "(?::" + group + "){" + std::to_string(before - 1) + "}:";
    const int after = 7 - before;
    out += "|" + head + ":";
    if (after > 0) out += "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
  }
  return out + ")";
}

std::string hostname() { return text({"(?:", kLabel, "\\.){0,4}", kLabel}); }

std::string email() {
  constexpr std::string_view kAtom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,24}";
  return text({kAtom, "(?:\\.", kAtom, ")?@(?:", kLabel, "\\.){1,3}", kLabel});
}

std::string uri(bool absolute) {
  constexpr std::string_view kChar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string path = text({"(?:/", kChar, "*)*"});
  const std::string authority =
      text({"//", "(?:[A-Za-z0-9._~-]+@)?(?:", kLabel, "\\.)*", kLabel, "(?::[0-9]{1,5})?"});
  const std::string tail = text({"(?:\\?(?:", kChar, "|[/?])*)?(?:#(?:", kChar, "|[/?])*)?"});
  const std::string scheme = "[A-Za-z][A-Za-z0-9+.-]*:";
  const std::string whole = text({scheme, "(?:", authority, path, "|/?", kChar, "+", path, ")", tail});
  return absolute ? whole : text({"(?:", whole, "|", path, tail, ")"});
}

std::string duration() {
  return "P(?:[0-9]{1,6}W|(?:[0-9]{1,6}D|[0-9]{1,6}M(?:[0-9]{1,6}D)?|[0-9]{1,6}Y(?:[0-9]{1,6}M(?:[0-9]{1,6}D)"
         "?)?)"
         "(?:T(?:[0-9]{1,6}S|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?))?"
         "|T(?:[0-9]{1,6}S|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?))";
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view name) {
  if (name == "date") return date();
  if (name == "time") return text({kTime, kZone});
  if (name == "date-time") return text({date(), "T", kTime, kZone});
  if (name == "duration") return duration();
  if (name == "uuid") return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (name == "email") return email();
  if (name == "hostname") return hostname();
  if (name == "ipv4") return ipv4();
  if (name == "ipv6") return ipv6();
  if (name == "uri") return uri(/*absolute=*/true);
  if (name == "uri-reference") return uri(/*absolute=*/false);
  if (name == "json-pointer") return "(?:/(?:[^/~]|~[01])*)*";
  return std::nullopt;
}

std::string_view format_names() {
  return "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri, uri-reference, "
         "json-pointer";
}

}  // namespace lmdeploy::grammar
