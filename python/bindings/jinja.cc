// Rendering of template strings for Python.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <optional>
#include <string_view>

#include "bindings/bindings.h"
#include "lmdeploy/jinja/template.h"

namespace lmdeploy::python {
namespace {

using jinja::LocalTime;

/// The fields of datetime.timetuple() but tm_isdst.
using DateFields = std::array<int, 8>;

DateFields get_date(const LocalTime& self) {
  const std::tm& date = self.date;
  const int weekday = (date.tm_wday + 6) % 7;  // Python's weeks begin on Monday
  return {date.tm_year + 1900, date.tm_mon + 1, date.tm_mday, date.tm_hour,
          date.tm_min,         date.tm_sec,     weekday,      date.tm_yday + 1};
}

void set_date(LocalTime& self, const DateFields& fields) {
  self.date = {};
  self.date.tm_year = fields[0] - 1900;
  self.date.tm_mon = fields[1] - 1;
  self.date.tm_mday = fields[2];
  self.date.tm_hour = fields[3];
  self.date.tm_min = fields[4];
  self.date.tm_sec = fields[5];
  self.date.tm_wday = (fields[6] + 1) % 7;
  self.date.tm_yday = fields[7] - 1;
}

std::string render_template(std::string_view source, const nb::dict& variables,
                            const std::optional<LocalTime>& now) {
  const Json converted = json_from_python(variables, "variables");
  const GilRelease release;
  const jinja::Template parsed{std::string(source)};
  if (!now) return parsed.render(converted.get_object());
  return parsed.render(converted.get_object(), [&] { return *now; });
}

}  // namespace

void bind_jinja(nb::module_& m) {
  nb::class_<LocalTime>(m, "LocalTime", "What strftime_now shows.")
      .def(nb::init<>())
      .def_prop_rw(
          "date", &get_date, &set_date,
          "(year, month, day, hour, minute, second, weekday, day of the year), as timetuple() counts.")
      .def_rw("microsecond", &LocalTime::microsecond)
      .def_rw("offset", &LocalTime::offset, "+hhmm for %z; \"\": unknown.")
      .def_rw("zone", &LocalTime::zone, "The zone's name for %Z; \"\": unknown.");
  m.def("render_template", &render_template, nb::arg("source"), nb::arg("variables"),
        nb::arg("now") = nb::none(), "Renders a Jinja template; `now`: the current time by default.");
}

}  // namespace lmdeploy::python
