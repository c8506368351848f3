// Whether arrays hold finite numbers only, at the speed of reading them.
#pragma once

#include "arguments.hpp"
#include "simd.hpp"

namespace mf::bindings {

// True when every number is finite: x - x is 0 then, and nan otherwise.
template <class Real>
bool all_finite(const Real* x, i64 n) {
  using R = Simd<Real, native_lanes<Real>>;
  typename R::Bits bad(0);
  i64 i = 0;
  for (; i + R::lanes <= n; i += R::lanes) {
    const R v = R::load(x + i);
    bad = bad | as_bits(v - v);
  }
  bool good = true;
  for (; i < n; ++i) good = good && x[i] - x[i] == Real(0);
  for (int lane = 0; lane < R::lanes; ++lane) good = good && bad[lane] == 0;
  return good;
}

template <class Real>
void check_finite(const Real* x, i64 n, const char* argument) {
  if (!all_finite(x, n)) require_finite(x, static_cast<Py_ssize_t>(n), argument);
}

template <class Real>
void check_bounded(const Real* last_states, i64 n) {
  if (all_finite(last_states, n)) return;
  PyErr_SetString(PyExc_OverflowError,
                  "the state has left the finite numbers: the network diverges\n"
                  "hint: scale `w_res` down, or choose an activation that bounds the state");
  throw nb::python_error();
}

}  // namespace mf::bindings
