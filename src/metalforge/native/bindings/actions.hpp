// The gauge actions that kernels are built for, by the name that Python calls them.
#pragma once

#include <nanobind/stl/string.h>

#include <string>
#include <variant>

#include "arguments.hpp"
#include "rectangle.hpp"

namespace mf::bindings {

using AnyAction = std::variant<WilsonAction, RectangleAction>;

// None is Wilson's; others are (name, coefficients).
inline AnyAction action_argument(nb::handle object) {
  if (object.is_none()) return WilsonAction{};
  std::string name;
  if (!nb::isinstance<nb::tuple>(object) || nb::len(object) != 2 || !nb::try_cast(object[0], name))
    throw nb::value_error("`action` must be None or a tuple (name, coefficients)");
  const auto coefficient = [&](Py_ssize_t wanted) {
    const In<double> values(nb::object(object[1]), "action coefficients", {wanted});
    require_finite(values.data(), values.size(), "action coefficients");
    return values.data()[0];
  };
  if (name == "wilson") return WilsonAction{};
  if (name == "rectangle") return RectangleAction{coefficient(1)};
  throw nb::value_error(("`action` must be wilson or rectangle. Got " + name).c_str());
}

}  // namespace mf::bindings
