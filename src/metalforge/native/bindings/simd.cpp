// A probe of the vector type, so that tests can compare its operations with NumPy at every build level.
#include "simd.hpp"

#include "arguments.hpp"
#include "elementary.hpp"

namespace mf::bindings {
namespace {

template <class T, class Op>
void lanewise(const T* x, const T* y, T* out, i64 n, Op op) {
  using V = Simd<T, native_lanes<T>>;
  constexpr int L = V::lanes;
  i64 i = 0;
  for (; i + L <= n; i += L) op(V::load(x + i), V::load(y + i)).store(out + i);
  const int rest = static_cast<int>(n - i);
  if (rest > 0) op(V::load_first(x + i, rest, T(1)), V::load_first(y + i, rest, T(1))).store_first(out + i, rest);
}

// out = op(x, y) vector by vector; permutes act within each vector of native width.
template <class T>
void probe(nb::str op_name, nb::handle x_object, nb::handle y_object, nb::handle out_object) {
  const In<T> x(x_object, "x", {any});
  const In<T> y(y_object, "y", {x.extent(0)});
  const Out<T> out(out_object, "out", {x.extent(0)});
  using V = Simd<T, native_lanes<T>>;
  const std::string name = op_name.c_str();
  const auto run = [&](auto op) {
    nb::gil_scoped_release release;
    lanewise(x.data(), y.data(), out.data(), x.size(), op);
  };
  if (name == "add")
    run([](V a, V b) { return a + b; });
  else if (name == "mul")
    run([](V a, V b) { return a * b; });
  else if (name == "div")
    run([](V a, V b) { return a / b; });
  else if (name == "fma")
    run([](V a, V b) { return fma(a, b, a); });
  else if (name == "sqrt")
    run([](V a, V) { return sqrt(a); });
  else if (name == "min")
    run([](V a, V b) { return select(a < b, a, b); });
  else if (name == "swap_neighbours")
    run([](V a, V) { return xor_lanes<1>(a); });
  else if (name == "swap_halves")
    run([](V a, V) { return xor_lanes<V::lanes / 2>(a); });
  else if (name == "rotate")
    run([](V a, V) { return rotate_lanes<1>(a); });
  else if (name == "lane_sum")
    run([](V a, V) { return V(horizontal_sum(a)); });
  else
    throw nb::value_error(("`op` is not a probe: " + name).c_str());
}

// log, sin(2 pi x) and cos(2 pi x) of the random number generator.
void elementary(nb::str op_name, nb::handle x_object, nb::handle out_object) {
  const In<double> x(x_object, "x", {any});
  const Out<double> out(out_object, "out", {x.extent(0)});
  using V = Simd<double, native_lanes<double>>;
  const std::string name = op_name.c_str();
  const auto run = [&](auto op) {
    nb::gil_scoped_release release;
    lanewise(x.data(), x.data(), out.data(), x.size(), op);
  };
  if (name == "log")
    run([](V a, V) { return log_positive(a); });
  else if (name == "sin_2pi")
    run([](V a, V) { return sincos_2pi(a).sin; });
  else if (name == "cos_2pi")
    run([](V a, V) { return sincos_2pi(a).cos; });
  else if (name == "tanh")
    run([](V a, V) { return tanh_of(a); });
  else
    throw nb::value_error(("`op` is not an elementary function: " + name).c_str());
}

}  // namespace

void bind_simd(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("simd_probe_f64", &probe<double>, "op"_a, "x"_a.none(), "y"_a.none(), "out"_a.none());
  m.def("simd_probe_f32", &probe<float>, "op"_a, "x"_a.none(), "y"_a.none(), "out"_a.none());
  m.def("elementary", &elementary, "op"_a, "x"_a.none(), "out"_a.none());
}

}  // namespace mf::bindings
