// Real numbers through the NPU's integer product, and a whole reservoir sequence through it.
//
//   y = scale (q W - zero point * row sum) + bias,    q = rint(factor [x; z]) + zero point
//
// Lines of 12 and 16 bits are two bytes, whose products are joined as 256 high + low; weights of several digits are
// joined as 15 high + low. Both are integers that a double holds.
#include <algorithm>
#include <chrono>

#include "activations.hpp"
#include "affine.hpp"
#include "finite.hpp"
#include "npu_weights.hpp"

namespace mf::bindings {
namespace {

// What a layer is made of, checked once. Host arithmetic is in Real.
template <class Real>
struct Layer {
  nb::object weights_object;  // keeps the weights alive
  const TiledWeights* weights;
  int first, second, units, digits, line_bytes;
  Real levels, zero_point, first_factor, second_factor;  // q = rint(factor * value) + zero_point, within +- levels
  std::vector<Real> scale, row_sum, bias;                // of each unit, after its digits are joined; whole vectors
  RowProduct row;
};

// Scratch of a thread: a single step must not pay for allocation.
template <class Real>
struct Scratch {
  std::vector<u8> lines;
  std::vector<i32> sums;
  std::vector<Real> pre;
  std::size_t line_stride = 0, sum_stride = 0;
  static Scratch& of(const Layer<Real>& s) {
    static thread_local Scratch scratch;
    const TiledWeights& w = *s.weights;
    constexpr std::size_t lanes = native_lanes<Real>;
    scratch.line_stride = static_cast<std::size_t>(w.words()) * tile_inputs;
    // Room for a whole vector past the end: the last load of a digit's block may start close to it.
    scratch.sum_stride = static_cast<std::size_t>(w.tiles()) * tile_units + lanes;
    scratch.lines.assign(scratch.line_stride * static_cast<std::size_t>(s.line_bytes), 0);
    scratch.sums.resize(scratch.sum_stride * static_cast<std::size_t>(s.line_bytes));
    scratch.pre.resize(s.scale.size());
    return scratch;
  }
};

std::size_t whole_vectors(int n, int lanes) { return static_cast<std::size_t>((n + lanes - 1) / lanes * lanes); }

// q = rint(factor x) + zero point, clipped to the levels there are. Adding 1.5 * 2^m rounds to the nearest integer,
// ties to even, and leaves it in the low bits, of which `low` takes eight and `high`, where there is one, the next.
template <class Real, class Value>
void encode(const Value* x, int n, Real factor, const Layer<Real>& s, u8* low, u8* high) {
  using R = Simd<Real, native_lanes<Real>>;
  using Values = Simd<Value, R::lanes>;
  using Bytes = Simd<u8, R::lanes>;
  const R least(-s.levels), most(s.levels), offset(s.zero_point), round(ExpTraits<Real>::round), f(factor);
  const auto quantised = [&](Values value) {
    R v = f * convert<Real>(value);
    v = select(most < v, most, v);
    v = select(v < least, least, v);
    return as_bits((v + round) + offset);
  };
  const auto byte = [](auto bits) { return Bytes(__builtin_convertvector(bits.v, typename Bytes::Storage)); };
  int i = 0;
  for (; i + R::lanes <= n; i += R::lanes) {
    const auto bits = quantised(Values::load(x + i));
    byte(bits).store(low + i);
    if (high) byte(bits >> 8).store(high + i);
  }
  if (i < n) {
    const auto bits = quantised(Values::load_first(x + i, n - i));
    byte(bits).store_first(low + i, n - i);
    if (high) byte(bits >> 8).store_first(high + i, n - i);
  }
}

// scratch.pre = y for the lines [x; z], plus `also` where it is given, in whole vectors.
template <class Real, class Value>
void layer_row(const Layer<Real>& s, const Value* x, const Value* z, const Real* also, Scratch<Real>& scratch) {
  using R = Simd<Real, native_lanes<Real>>;
  using Ints = Simd<i32, R::lanes>;
  const TiledWeights& w = *s.weights;
  u8* low = scratch.lines.data();
  u8* high = s.line_bytes == 2 ? low + scratch.line_stride : nullptr;
  encode(x, s.first, s.first_factor, s, low, high);
  if (s.second) encode(z, s.second, s.second_factor, s, low + s.first, high ? high + s.first : nullptr);
  const i32* sums = scratch.sums.data();
  const i32* high_sums = sums + scratch.sum_stride;
  s.row(low, w.words(), w.tiles(), w.data(), scratch.sums.data());
  if (high) s.row(high, w.words(), w.tiles(), w.data(), scratch.sums.data() + scratch.sum_stride);
  const auto block = [&](int at) {
    const R of_low = convert<Real>(Ints::load(sums + at));
    return high ? R(Real(256)) * convert<Real>(Ints::load(high_sums + at)) + of_low : of_low;
  };
  for (int i = 0; i < s.units; i += R::lanes) {
    R acc = block(i);
    for (int d = 1; d < s.digits; ++d)  // most significant first; the caller made sure that these integers are exact
      acc = R(Real(15)) * acc + block(d * s.units + i);
    R y = R::load(s.scale.data() + i) * (acc - R(s.zero_point) * R::load(s.row_sum.data() + i));
    if (also) y = y + R::load(also + i);
    (y + R::load(s.bias.data() + i)).store(scratch.pre.data() + i);
  }
}

template <class Real>
using Activate = void (*)(Real*, std::size_t);

// x = f(x), for whole vectors.
template <class Real, Activation A>
void activate_all(Real* x, std::size_t n) {
  using R = Simd<Real, native_lanes<Real>>;
  for (std::size_t i = 0; i < n; i += R::lanes) activate<A>(R::load(x + i)).store(x + i);
}

template <class Real>
Activate<Real> activation_named(const std::string& name) {
  if (name == "tanh") return activate_all<Real, Activation::tanh>;
  if (name == "relu") return activate_all<Real, Activation::relu>;
  if (name == "bounded_relu") return activate_all<Real, Activation::bounded_relu>;
  if (name == "identity") return activate_all<Real, Activation::identity>;
  if (name == "sigmoid") return activate_all<Real, Activation::sigmoid>;
  if (name == "gelu") return activate_all<Real, Activation::gelu>;
  if (name == "piecewise_tanh") return activate_all<Real, Activation::piecewise_tanh>;
  throw nb::value_error(
      ("`activation` must be tanh, relu, bounded_relu, identity, sigmoid, gelu or piecewise_tanh. Got " + name)
          .c_str());
}

// next = kept * old + leak * activated: the first product in the type of the state, the sum in Real, rounded once.
template <class Real, class State>
void leak_into(const Real* activated, const State* old, State* next, i64 n, State kept, Real leak) {
  using R = Simd<Real, native_lanes<Real>>;
  using S = Simd<State, R::lanes>;
  const auto leaky = [&](R f, S s) { return convert<State>(convert<Real>(S(kept) * s) + R(leak) * f); };
  i64 i = 0;
  for (; i + R::lanes <= n; i += R::lanes) leaky(R::load(activated + i), S::load(old + i)).store(next + i);
  if (const int rest = static_cast<int>(n - i); rest > 0)
    leaky(R::load_first(activated + i, rest), S::load_first(old + i, rest)).store_first(next + i, rest);
}

// A reservoir whose product is a layer of the lines [state; input], or of the state alone where the host multiplies the
// inputs by `w_in`.
template <class Real, class State>
struct Sequence {
  Layer<Real> layer;
  nb::object w_in_object;  // keeps the map alive
  const Affine<Real>* w_in;
  State kept;
  Real leak;
  Activate<Real> activation;
  int inputs() const { return w_in ? w_in->first() : layer.second; }
};

// What the inputs of some steps add to the units, where the host multiplies them: several steps at a time, for the
// inputs are known before the states.
template <class Real, class State>
class HostInputs {
 public:
  HostInputs(const Affine<Real>* map, const State* u, i64 steps) : map_(map), u_(u), steps_(steps) {
    if (!map) return;
    inputs().resize(static_cast<std::size_t>(together * map->first()));
    sums().resize(static_cast<std::size_t>(together * map->padded()));
  }
  // Of step t; steps are asked for one after the other.
  const Real* at(i64 t) {
    if (!map_) return nullptr;
    const i64 place = t % together;
    if (place == 0) {
      const i64 n = std::min<i64>(together, steps_ - t), width = map_->first();
      Real* x = inputs().data();
      for (i64 i = 0; i < n * width; ++i) x[i] = static_cast<Real>(u_[t * width + i]);
      if (n == together)
        map_->template rows<together, 2>(x, x, sums().data());
      else
        for (i64 r = 0; r < n; ++r) map_->template rows<1, 8>(x + r * width, x, sums().data() + r * map_->padded());
    }
    return sums().data() + place * map_->padded();
  }

 private:
  static constexpr int together = 4;
  static std::vector<Real>& inputs() {
    static thread_local std::vector<Real> kept;
    return kept;
  }
  static std::vector<Real>& sums() {
    static thread_local std::vector<Real> kept;
    return kept;
  }
  const Affine<Real>* map_;
  const State* u_;
  i64 steps_;
};

// One step in this many is timed, for the seconds that activation and leak take: a look at the clock is a tenth of a
// step.
constexpr i64 timed_every = 16;

// s' = kept s + leak f(y([s; u])) for every row of u; returns the seconds that activations and leaks took. The state's
// lines come first: there the vectors that are stored start at a word that is loaded next.
template <class Real, class State>
double run_sequence(const Sequence<Real, State>& q, const State* u, i64 steps, State* state, State* states) {
  using Clock = std::chrono::steady_clock;
  const Layer<Real>& s = q.layer;
  auto& scratch = Scratch<Real>::of(s);
  HostInputs<Real, State> on_host(q.w_in, u, steps);
  double seconds = 0;
  for (i64 t = 0; t < steps; ++t) {
    layer_row(s, state, u + t * s.second, on_host.at(t), scratch);
    const bool timed = t % timed_every == 0;
    const auto start = timed ? Clock::now() : Clock::time_point();
    q.activation(scratch.pre.data(), scratch.pre.size());
    leak_into(scratch.pre.data(), state, state, s.units, q.kept, q.leak);
    if (timed)
      seconds += std::chrono::duration<double>(Clock::now() - start).count() *
                 static_cast<double>(std::min(timed_every, steps - t));
    if (states) std::copy_n(state, s.units, states + t * s.units);
  }
  return seconds;
}

template <class Real>
std::vector<Real> finite_row(nb::handle object, const char* name, int units) {
  const In<Real> x(object, name, {units});
  require_finite(x.data(), x.size(), name);
  std::vector<Real> row(whole_vectors(units, native_lanes<Real>), Real(0));
  std::copy_n(x.data(), units, row.begin());
  return row;
}

template <class Real>
Layer<Real> layer_of(nb::object weights_object, int first, int second, nb::handle scale, nb::handle row_sum,
                     nb::handle bias, int digits, int bits, double first_factor, double second_factor,
                     const std::string& path) {
  const auto* weights = nb::cast<const TiledWeights*>(weights_object);
  if (digits < 1 || digits > 3) throw nb::value_error("`digits` must be 1, 2 or 3");
  if (bits != 4 && bits != 8 && bits != 12 && bits != 16) throw nb::value_error("`bits` must be 4, 8, 12 or 16");
  const int units = weights->units() / digits;
  if (first < 1 || second < 0 || weights->units() != digits * units || weights->inputs() != first + second)
    throw nb::value_error("`weights` must be of units + inputs lines by digits * units outputs");
  const int largest_weight = digits == 1 ? 7 : digits == 2 ? 112 : 1687;
  const double largest = static_cast<double>(weights->inputs()) * ((1 << bits) - 1) * largest_weight;
  if (sizeof(Real) == sizeof(float) && largest > 0x1p24)
    throw nb::value_error("`digits`: joined integers could pass 2^24, which float32 cannot hold; use float64");
  require_finite(&first_factor, 1, "state_factor");
  require_finite(&second_factor, 1, "input_factor");
  const Real zero_point = static_cast<Real>(1 << (bits - 1));
  return {weights_object,
          weights,
          first,
          second,
          units,
          digits,
          bits > 8 ? 2 : 1,
          zero_point - 1,
          zero_point,
          static_cast<Real>(first_factor),
          static_cast<Real>(second_factor),
          finite_row<Real>(scale, "scale", units),
          finite_row<Real>(row_sum, "row_sum", units),
          finite_row<Real>(bias, "bias", units),
          row_product(path)};
}

template <class Real, class State>
void make_sequence(Sequence<Real, State>* self, nb::object weights_object, int inputs, nb::handle scale,
                   nb::handle row_sum, nb::handle bias, int digits, int bits, double input_factor, double state_factor,
                   double leak, nb::str activation, nb::str path, nb::object w_in_object) {
  require_finite(&leak, 1, "leak");
  const auto* weights = nb::cast<const TiledWeights*>(weights_object);
  const int units = digits > 0 ? weights->units() / digits : 0;
  const auto* w_in = w_in_object.is_none() ? nullptr : nb::cast<const Affine<Real>*>(w_in_object);
  if (w_in ? inputs != 0 : inputs < 1) throw nb::value_error("`inputs` must be lines, or 0 where `w_in` is given");
  if (w_in && (w_in->outputs() != units || w_in->second() != 0))
    throw nb::value_error("`w_in` must be a map of the inputs to the units");
  // What is kept of a state is found in the type of the leak: double, unless all is single.
  const State kept = sizeof(Real) == sizeof(State) ? static_cast<State>(Real(1) - static_cast<Real>(leak))
                                                   : static_cast<State>(1 - leak);
  new (self) Sequence<Real, State>{layer_of<Real>(weights_object, units, inputs, scale, row_sum, bias, digits, bits,
                                                  state_factor, input_factor, path.c_str()),
                                   w_in_object,
                                   w_in,
                                   kept,
                                   static_cast<Real>(leak),
                                   activation_named<Real>(activation.c_str())};
}

// states[t] = the state after row t of u, of one sequence or of each in a batch; `state` is moved to the last one.
// Returns seconds of activation.
template <class Real, class State>
double run_rows(const Sequence<Real, State>& q, nb::handle u_object, nb::handle state_object,
                nb::handle states_object) {
  const Py_ssize_t units = q.layer.units, inputs = q.inputs();
  const In<State> u(u_object, "u", {maybe, any, inputs});
  const bool batch = u.rank() == 3;
  const Py_ssize_t samples = batch ? u.extent(0) : 1, steps = u.extent(u.rank() - 2);
  const Out<State> state(state_object, "state", batch ? Shape{samples, units} : Shape{units});
  const Out<State> states(states_object, "states", batch ? Shape{samples, steps, units} : Shape{steps, units});
  check_finite(u.data(), u.size(), "u");
  check_finite(state.data(), state.size(), "state");
  double seconds = 0;
  {
    nb::gil_scoped_release release;
    for (i64 b = 0; b < samples; ++b)
      seconds += run_sequence(q, u.data() + b * steps * inputs, steps, state.data() + b * units,
                              states.data() + b * steps * units);
  }
  check_bounded(states.data(), states.size());
  return seconds;
}

// One step in place, of one state or of each in a batch; half a microsecond of work, so the GIL is kept.
template <class Real, class State>
double run_step(const Sequence<Real, State>& q, nb::handle u_object, nb::handle state_object) {
  const Py_ssize_t units = q.layer.units, inputs = q.inputs();
  const In<State> u(u_object, "u", {maybe, inputs});
  const Py_ssize_t samples = u.rank() == 2 ? u.extent(0) : 1;
  const Out<State> state(state_object, "state", u.rank() == 2 ? Shape{samples, units} : Shape{units});
  check_finite(u.data(), u.size(), "u");
  check_finite(state.data(), state.size(), "state");
  double seconds = 0;
  for (i64 b = 0; b < samples; ++b)
    seconds += run_sequence<Real, State>(q, u.data() + b * inputs, 1, state.data() + b * units, nullptr);
  check_bounded(state.data(), state.size());
  return seconds;
}

// A layer of its own, whose lines are of type Value: y (units,) for x (first,) and z (second,), or a batch of each.
template <class Value>
struct Matrix {
  Layer<double> layer;
};

template <class Value>
void make_matrix(Matrix<Value>* self, nb::object weights, int first, int second, nb::handle scale, nb::handle row_sum,
                 nb::handle bias, int digits, int bits, double first_factor, double second_factor, nb::str path) {
  new (self) Matrix<Value>{layer_of<double>(weights, first, second, scale, row_sum, bias, digits, bits, first_factor,
                                            second_factor, path.c_str())};
}

// write(sample, y) for every sample.
template <class Value, class Write>
void matrix_rows(const Matrix<Value>& m, nb::handle x_object, nb::handle z_object, nb::handle out_object,
                 Write&& write) {
  const Layer<double>& s = m.layer;
  const In<Value> x(x_object, "x", {maybe, s.first});
  const bool batch = x.rank() == 2;
  const Py_ssize_t samples = batch ? x.extent(0) : 1;
  const auto shape = [&](Py_ssize_t n) { return batch ? Shape{samples, n} : Shape{n}; };
  const Out<double> out(out_object, "out", shape(s.units));
  check_finite(x.data(), x.size(), "x");
  const auto rows = [&](const Value* z) {
    auto& scratch = Scratch<double>::of(s);
    for (i64 b = 0; b < samples; ++b) {
      layer_row<double, Value>(s, x.data() + b * s.first, z ? z + b * s.second : nullptr, nullptr, scratch);
      write(scratch.pre.data(), out.data() + b * s.units);
    }
  };
  if (s.second == 0) return rows(nullptr);
  const In<Value> z(z_object, "z", shape(s.second));
  check_finite(z.data(), z.size(), "z");
  rows(z.data());
}

template <class Value>
void run_matrix(const Matrix<Value>& m, nb::handle x, nb::handle z, nb::handle out) {
  matrix_rows(m, x, z, out, [&](const double* y, double* target) { std::copy_n(y, m.layer.units, target); });
}

// out = kept state + leak f(pre): the host's half of a step whose product was computed elsewhere. Any shape, flat.
template <class Real, class State>
void leaky_step(nb::handle state_object, nb::handle pre_object, nb::handle out_object, double kept, double leak,
                nb::str activation) {
  const In<State> state(state_object, "state", {any});
  const In<Real> pre(pre_object, "pre", {state.size()});
  const Out<State> out(out_object, "out", {state.size()});
  const auto f = activation_named<Real>(activation.c_str());
  constexpr i64 block = 512;  // what stays in the first-level cache between activation and leak
  Real values[block] = {};
  for (i64 i = 0; i < state.size(); i += block) {
    const i64 n = std::min<i64>(block, state.size() - i);
    std::copy_n(pre.data() + i, n, values);
    f(values, whole_vectors(static_cast<int>(n), native_lanes<Real>));
    for (i64 j = 0; j < n; ++j)  // the activations take nan for a number
      if (pre.data()[i + j] != pre.data()[i + j]) values[j] = pre.data()[i + j];
    leak_into(values, state.data() + i, out.data() + i, n, static_cast<State>(kept), static_cast<Real>(leak));
  }
}

template <class Real, class State>
void bind_sequence(nb::module_& m, const std::string& kind) {
  using nb::literals::operator""_a;
  using S = Sequence<Real, State>;
  nb::class_<S>(m, ("NpuSequence_" + kind).c_str())
      .def("__init__", &make_sequence<Real, State>, "weights"_a, "inputs"_a, "scale"_a.none(), "row_sum"_a.none(),
           "bias"_a.none(), "digits"_a, "bits"_a, "input_factor"_a, "state_factor"_a, "leak"_a, "activation"_a,
           "path"_a, "w_in"_a = nb::none())
      .def("run", &run_rows<Real, State>, "u"_a.none(), "state"_a.none(), "states"_a.none())
      .def("step", &run_step<Real, State>, "u"_a.none(), "state"_a.none());
  m.def(("leaky_step_" + kind).c_str(), &leaky_step<Real, State>, "state"_a.none(), "pre"_a.none(), "out"_a.none(),
        "kept"_a, "leak"_a, "activation"_a);
}

template <class Value>
void bind_matrix(nb::module_& m, const char* name) {
  using nb::literals::operator""_a;
  nb::class_<Matrix<Value>>(m, name)
      .def("__init__", &make_matrix<Value>, "weights"_a, "first"_a, "second"_a, "scale"_a.none(), "row_sum"_a.none(),
           "bias"_a.none(), "digits"_a, "bits"_a, "first_factor"_a, "second_factor"_a, "path"_a)
      .def("run", &run_matrix<Value>, "x"_a.none(), "z"_a.none(), "out"_a.none());
}

}  // namespace

void bind_npu_sequence(nb::module_& m) {
  bind_sequence<double, double>(m, "f64");
  bind_sequence<float, float>(m, "f32");
  bind_sequence<double, float>(m, "mixed");  // a state of single precision, host arithmetic in double
  bind_matrix<double>(m, "NpuMatrix_f64");
  bind_matrix<float>(m, "NpuMatrix_f32");
}

}  // namespace mf::bindings
