// df64 operations over planar arrays: row 0 holds the high parts, row 1 the low parts.
#include "df64.hpp"

#include <string_view>

#include "arguments.hpp"

namespace mf::bindings {
namespace {

using F = Simd<float, native_lanes<float>>;
constexpr int L = F::lanes;

template <class Op>
void apply(const float* a, const float* b, const float* c, float* out, i64 n, int threads, Op op) {
  const auto pair = [n](const float* x, i64 i, int count) {
    return Df64<F>(F::load_first(x + i, count, 1.0f), F::load_first(x + n + i, count, 0.0f));
  };
  const auto full_pair = [n](const float* x, i64 i) { return Df64<F>(F::load(x + i), F::load(x + n + i)); };
  const i64 vectors = n / L;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (i64 v = 0; v < vectors; ++v) {
    const i64 i = v * L;
    const Df64<F> r = op(full_pair(a, i), full_pair(b, i), full_pair(c, i));
    r.hi.store(out + i);
    r.lo.store(out + n + i);
  }
  if (const int rest = static_cast<int>(n % L)) {
    const i64 i = vectors * L;
    const Df64<F> r = op(pair(a, i, rest), pair(b, i, rest), pair(c, i, rest));
    r.hi.store_first(out + i, rest);
    r.lo.store_first(out + n + i, rest);
  }
}

using D = Df64<F>;

// out = op(a, b, c); operations of fewer operands ignore the others (pass `a` again).
void df64(nb::str op_name, nb::handle a_object, nb::handle b_object, nb::handle c_object, nb::handle out_object,
          nb::handle threads_object) {
  const In<float> a(a_object, "a", {2, any});
  const In<float> b(b_object, "b", {2, a.extent(1)});
  const In<float> c(c_object, "c", {2, a.extent(1)});
  const Out<float> out(out_object, "out", {2, a.extent(1)});
  const int threads = thread_argument(threads_object);
  require_finite(a.data(), a.size(), "a");
  require_finite(b.data(), b.size(), "b");
  require_finite(c.data(), c.size(), "c");
  const i64 n = a.extent(1);
  const std::string name = op_name.c_str();
  const auto run = [&](auto op) {
    nb::gil_scoped_release release;
    apply(a.data(), b.data(), c.data(), out.data(), n, threads, op);
  };
  if (name == "add")
    run([](D x, D y, D) { return x + y; });
  else if (name == "sub")
    run([](D x, D y, D) { return x - y; });
  else if (name == "mul")
    run([](D x, D y, D) { return x * y; });
  else if (name == "div")
    run([](D x, D y, D) { return x / y; });
  else if (name == "fma")
    run([](D x, D y, D z) { return mul_add(x, y, z); });
  else if (name == "sqrt")
    run([](D x, D, D) { return sqrt(x); });
  else
    throw nb::value_error(("`op` must be one of add, sub, mul, div, fma, sqrt. Got " + name).c_str());
}

}  // namespace

void bind_df64(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("df64", &df64, "op"_a, "a"_a.none(), "b"_a.none(), "c"_a.none(), "out"_a.none(), "threads"_a.none());
}

}  // namespace mf::bindings
