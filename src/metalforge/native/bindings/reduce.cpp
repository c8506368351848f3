// Ordered sums and dot products of float64 and float32 arrays; accumulation is in double.
#include "reduce.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "arguments.hpp"

namespace mf::bindings {
namespace {

using Wide = Simd<double, reduce_lanes>;

template <class T>
Wide load_wide(const T* p) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return Wide::load(p);
  } else {
    Wide r;
    for (int i = 0; i < reduce_lanes; ++i) r.set(i, static_cast<double>(p[i]));
    return r;
  }
}

template <class WideFn, class TermFn>
double ordered_sum(i64 n, int threads, WideFn wide, TermFn term) {
  const i64 blocks = reduce_blocks(n);
  std::vector<double> partial(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 b = 0; b < blocks; ++b)
    partial[static_cast<std::size_t>(b)] = block_sum(b * reduce_block, std::min((b + 1) * reduce_block, n), wide, term);
  return tree_sum(partial.data(), blocks);
}

template <class T>
double sum_of(nb::handle x_object, nb::handle threads_object) {
  const In<T> x(x_object, "x", {any});
  const int threads = thread_argument(threads_object);
  double result;
  {
    nb::gil_scoped_release release;
    const T* p = x.data();
    result = ordered_sum(
        x.size(), threads, [p](i64 i) { return load_wide(p + i); }, [p](i64 i) { return static_cast<double>(p[i]); });
  }
  // Only a sum that is not finite can hide a value that is not: the check costs nothing otherwise.
  if (!std::isfinite(result)) require_finite(x.data(), x.size(), "x");
  return result;
}

template <class T>
double dot_of(nb::handle x_object, nb::handle y_object, nb::handle threads_object) {
  const In<T> x(x_object, "x", {any});
  const In<T> y(y_object, "y", {x.extent(0)});
  const int threads = thread_argument(threads_object);
  double result;
  {
    nb::gil_scoped_release release;
    const T *p = x.data(), *q = y.data();
    result = ordered_sum(
        x.size(), threads, [p, q](i64 i) { return load_wide(p + i) * load_wide(q + i); },
        [p, q](i64 i) { return static_cast<double>(p[i]) * static_cast<double>(q[i]); });
  }
  if (!std::isfinite(result)) {
    require_finite(x.data(), x.size(), "x");
    require_finite(y.data(), y.size(), "y");
  }
  return result;
}

}  // namespace

void bind_reduce(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("sum_f64", &sum_of<double>, "x"_a.none(), "threads"_a.none());
  m.def("sum_f32", &sum_of<float>, "x"_a.none(), "threads"_a.none());
  m.def("dot_f64", &dot_of<double>, "x"_a.none(), "y"_a.none(), "threads"_a.none());
  m.def("dot_f32", &dot_of<float>, "x"_a.none(), "y"_a.none(), "threads"_a.none());
}

}  // namespace mf::bindings
