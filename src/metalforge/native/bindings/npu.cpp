// Drivers of the NPU's integer product, and of a whole reservoir sequence through it.
#include "npu.hpp"

#include <vector>

#include "arguments.hpp"
#include "elementary.hpp"

namespace mf::bindings {
namespace {

using u8 = unsigned char;
using i8 = signed char;
using RowProduct = void (*)(const u8*, int, int, const i8*, i32*);

void row_pairs(const u8* x, int words, int tiles, const i8* w, i32* out) {
  product_row<PairTile>(x, words, tiles, w, out);
}
void row_portable(const u8* x, int words, int tiles, const i8* w, i32* out) {
  product_row<PortableTile>(x, words, tiles, w, out);
}

#if MF_X86 && defined(__AVX512BW__)
// VNNI is not part of x86-64-v4: these functions are compiled for it, and called where the CPU has it. The tile type
// cannot be shared with product_row, which is compiled without.
#pragma GCC push_options
#pragma GCC target("avx512vnni")
template <int Group>
__attribute__((always_inline)) inline void vnni_group(const u8* x, int words, const i8* weights, i64 stride, i32* out) {
  __m512i acc[Group];
#pragma GCC unroll 8
  for (int g = 0; g < Group; ++g) acc[g] = _mm512_setzero_si512();
  for (int w = 0; w < words; ++w) {
    i32 word;
    __builtin_memcpy(&word, x + tile_inputs * w, sizeof(word));
    const __m512i inputs = _mm512_set1_epi32(word);
#pragma GCC unroll 8
    for (int g = 0; g < Group; ++g)
      acc[g] =
          _mm512_dpbusd_epi32(acc[g], inputs, _mm512_loadu_si512(weights + g * stride + w * tile_units * tile_inputs));
  }
#pragma GCC unroll 8
  for (int g = 0; g < Group; ++g) _mm512_storeu_si512(out + g * tile_units, acc[g]);
}
void row_vnni(const u8* x, int words, int tiles, const i8* weights, i32* out) {
  const i64 stride = static_cast<i64>(words) * tile_units * tile_inputs;
  int t = 0;
  for (; t + 8 <= tiles; t += 8) vnni_group<8>(x, words, weights + t * stride, stride, out + t * tile_units);
  for (; t + 2 <= tiles; t += 2) vnni_group<2>(x, words, weights + t * stride, stride, out + t * tile_units);
  for (; t < tiles; ++t) vnni_group<1>(x, words, weights + t * stride, stride, out + t * tile_units);
}
#pragma GCC pop_options
#endif

RowProduct row_product(const std::string& path) {
  if (path != "auto" && path != "vnni" && path != "pairs" && path != "portable")
    throw nb::value_error(("`path` must be auto, vnni, pairs or portable. Got " + path).c_str());
  if (path == "portable") return row_portable;
#if MF_X86 && defined(__AVX512BW__)
  if (path != "pairs" && __builtin_cpu_supports("avx512vnni")) return row_vnni;
  if (path == "vnni") throw nb::value_error("`path` vnni: this CPU does not have AVX-512 VNNI");
#else
  if (path == "vnni") throw nb::value_error("`path` vnni: this build level does not have AVX-512");
#endif
  return row_pairs;
}

// Weights of one layer, checked and tiled once: tile (t, w) holds units 16 t ... by inputs 4 w ..., padded with zeros.
class TiledWeights {
 public:
  explicit TiledWeights(nb::handle object) {
    const In<i8> w(object, "weights", {any, any});
    inputs_ = static_cast<int>(w.extent(0));
    units_ = static_cast<int>(w.extent(1));
    words_ = (inputs_ + tile_inputs - 1) / tile_inputs;
    tiles_ = (units_ + tile_units - 1) / tile_units;
    // Tiles are a cache line each: one that straddles two costs twice.
    data_.assign(static_cast<std::size_t>(words_) * static_cast<std::size_t>(tiles_) * tile_units * tile_inputs + 63,
                 0);
    start_ = data_.data() + (64 - reinterpret_cast<std::uintptr_t>(data_.data()) % 64) % 64;
    for (int n = 0; n < inputs_; ++n)
      for (int u = 0; u < units_; ++u) {
        const i8 value = w.data()[static_cast<i64>(n) * units_ + u];
        // Up to 7 no pair of products leaves 16 bits, which the instructions without VNNI rely on.
        if (value > 7 || value < -7) throw nb::value_error("`weights` must lie in -7 .. 7");
        const i64 tile = static_cast<i64>(u / tile_units) * words_ + n / tile_inputs;
        start_[(tile * tile_units + u % tile_units) * tile_inputs + n % tile_inputs] = value;
      }
  }
  int inputs() const { return inputs_; }
  int units() const { return units_; }
  int words() const { return words_; }
  int tiles() const { return tiles_; }
  const i8* data() const { return start_; }
  TiledWeights(const TiledWeights&) = delete;  // start_ points into data_

 private:
  int inputs_, units_, words_, tiles_;
  std::vector<i8> data_;
  i8* start_;
};

// out[b][u] = sum_n x[b][n] w[n][u], clamped to the signed integers of `potential_bits`; x lies in 0 .. x_max.
void product(const TiledWeights& weights, nb::handle x_object, nb::handle out_object, int x_max, int potential_bits,
             nb::str path) {
  const In<u8> x(x_object, "x", {any, weights.inputs()});
  const Out<i32> out(out_object, "out", {x.extent(0), weights.units()});
  if (potential_bits < 2 || potential_bits > 32) throw nb::value_error("`potential_bits` must lie in 2 .. 32");
  const RowProduct row = row_product(path.c_str());
  u8 largest = 0;
  for (Py_ssize_t i = 0; i < x.size(); ++i) largest = x.data()[i] > largest ? x.data()[i] : largest;
  if (largest > x_max)
    throw nb::value_error(
        ("`x` must lie in 0 .. " + std::to_string(x_max) + ". Got " + std::to_string(largest)).c_str());
  const i32 high = static_cast<i32>((i64{1} << (potential_bits - 1)) - 1), low = -high - 1;
  nb::gil_scoped_release release;
  // Rows go through padded buffers: neither reads past the inputs nor writes past the units.
  std::vector<u8> lines(static_cast<std::size_t>(weights.words()) * tile_inputs, 0);
  std::vector<i32> sums(static_cast<std::size_t>(weights.tiles()) * tile_units);
  const auto inputs = static_cast<std::size_t>(weights.inputs()), units = static_cast<std::size_t>(weights.units());
  for (i64 b = 0; b < x.extent(0); ++b) {
    __builtin_memcpy(lines.data(), x.data() + b * weights.inputs(), inputs);
    row(lines.data(), weights.words(), weights.tiles(), weights.data(), sums.data());
    i32* target = out.data() + b * weights.units();
    for (std::size_t u = 0; u < units; ++u) target[u] = sums[u] > high ? high : sums[u] < low ? low : sums[u];
  }
}

enum class HostActivation { tanh, relu, identity };

template <HostActivation A, class R>
MF_INLINE R activate(R x) {
  if constexpr (A == HostActivation::tanh) return tanh_of(x);
  const R zero(typename R::value_type(0));
  if constexpr (A == HostActivation::relu) return select(x < zero, zero, x);
  return x;
}

// What a loop is made of, checked once.
template <class Real>
struct Sequence {
  nb::object weights_object;  // keeps the weights alive
  const TiledWeights* weights;
  int inputs, units, digits;
  Real levels, zero_point, input_factor, state_factor;  // q = rint(factor * value) + zero_point, within +- levels
  std::vector<Real> scale, row_sum, bias;               // of each unit, after its digits are joined
  Real leak;
  RowProduct row;
  HostActivation activation;
};

// q = rint(factor x) + zero point, clipped to the levels there are. Adding 1.5 * 2^m rounds to the nearest integer,
// ties to even, and leaves it in the low bits, of which q takes eight.
template <class Real>
void encode(const Real* x, int n, Real factor, const Sequence<Real>& s, u8* out) {
  using R = Simd<Real, native_lanes<Real>>;
  using Bytes = Simd<u8, R::lanes>;
  const R low(-s.levels), high(s.levels), offset(s.zero_point), round(ExpTraits<Real>::round), f(factor);
  const auto quantised = [&](R v) {
    v = f * v;
    v = select(high < v, high, v);
    v = select(v < low, low, v);
    const auto bits = as_bits((v + round) + offset);
    return Bytes(__builtin_convertvector(bits.v, typename Bytes::Storage));
  };
  int i = 0;
  for (; i + R::lanes <= n; i += R::lanes) quantised(R::load(x + i)).store(out + i);
  if (i < n) quantised(R::load_first(x + i, n - i)).store_first(out + i, n - i);
}

// s' = (1 - a) s + a f(scale (acc - zero point * row sum) + bias), acc = [s; u]_q W, for every row of u. The state's
// lines come first: there the vectors that are stored start at a word that is loaded next.
template <class Real, HostActivation A>
void run_sequence(const Sequence<Real>& s, const Real* u, i64 steps, Real* state, Real* states) {
  using R = Simd<Real, native_lanes<Real>>;
  using Ints = Simd<i32, R::lanes>;
  const TiledWeights& w = *s.weights;
  // Scratch of this thread: a single step must not pay for allocation.
  static thread_local std::vector<u8> lines;
  static thread_local std::vector<i32> sums;
  lines.assign(static_cast<std::size_t>(w.words()) * tile_inputs, 0);
  // Room for a whole vector past the end: the last load of a digit's block may start close to it.
  sums.resize(static_cast<std::size_t>(w.tiles()) * tile_units + R::lanes);
  const auto joined = [&](int i) {
    R acc = convert<Real>(Ints::load(sums.data() + i));
    for (int d = 1; d < s.digits; ++d)  // most significant first; the caller made sure that these integers are exact
      acc = R(Real(15)) * acc + convert<Real>(Ints::load(sums.data() + d * s.units + i));
    return acc;
  };
  const auto update = [&](R acc, R scale, R row_sum, R bias, R old) {
    const R pre = scale * (acc - R(s.zero_point) * row_sum) + bias;
    return R(Real(1) - s.leak) * old + R(s.leak) * activate<A>(pre);
  };
  for (i64 t = 0; t < steps; ++t) {
    encode(state, s.units, s.state_factor, s, lines.data());
    encode(u + t * s.inputs, s.inputs, s.input_factor, s, lines.data() + s.units);
    s.row(lines.data(), w.words(), w.tiles(), w.data(), sums.data());
    int i = 0;
    for (; i + R::lanes <= s.units; i += R::lanes) {
      const R next = update(joined(i), R::load(s.scale.data() + i), R::load(s.row_sum.data() + i),
                            R::load(s.bias.data() + i), R::load(state + i));
      next.store(state + i);
      if (states) next.store(states + t * s.units + i);
    }
    if (const int rest = s.units - i; rest > 0) {
      const R next =
          update(joined(i), R::load_first(s.scale.data() + i, rest), R::load_first(s.row_sum.data() + i, rest),
                 R::load_first(s.bias.data() + i, rest), R::load_first(state + i, rest));
      next.store_first(state + i, rest);
      if (states) next.store_first(states + t * s.units + i, rest);
    }
  }
}

template <class Real>
void run_any(const Sequence<Real>& s, const Real* u, i64 steps, Real* state, Real* states) {
  switch (s.activation) {
    case HostActivation::tanh:
      return run_sequence<Real, HostActivation::tanh>(s, u, steps, state, states);
    case HostActivation::relu:
      return run_sequence<Real, HostActivation::relu>(s, u, steps, state, states);
    case HostActivation::identity:
      return run_sequence<Real, HostActivation::identity>(s, u, steps, state, states);
  }
}

template <class Real>
std::vector<Real> finite_row(nb::handle object, const char* name, int units) {
  const In<Real> x(object, name, {units});
  require_finite(x.data(), x.size(), name);
  return std::vector<Real>(x.data(), x.data() + x.size());
}

HostActivation activation_named(const std::string& name) {
  if (name == "tanh") return HostActivation::tanh;
  if (name == "relu") return HostActivation::relu;
  if (name == "identity") return HostActivation::identity;
  throw nb::value_error(("`activation` must be tanh, relu or identity. Got " + name).c_str());
}

template <class Real>
void make_sequence(Sequence<Real>* self, nb::object weights_object, int inputs, nb::handle scale, nb::handle row_sum,
                   nb::handle bias, int digits, int bits, double input_factor, double state_factor, double leak,
                   nb::str activation, nb::str path) {
  const auto* weights = nb::cast<const TiledWeights*>(weights_object);
  if (digits < 1 || digits > 3) throw nb::value_error("`digits` must be 1, 2 or 3");
  if (bits != 4 && bits != 8) throw nb::value_error("`bits` must be 4 or 8: wider activations take several passes");
  const int units = weights->units() / digits;
  if (inputs < 1 || weights->units() != digits * units || weights->inputs() != inputs + units)
    throw nb::value_error("`weights` must be of units + inputs lines by digits * units outputs");
  const int largest_weight = digits == 1 ? 7 : digits == 2 ? 112 : 1687;
  const double largest = static_cast<double>(weights->inputs()) * ((1 << bits) - 1) * largest_weight;
  if (sizeof(Real) == sizeof(float) && largest > 0x1p24)
    throw nb::value_error("`digits`: joined integers could pass 2^24, which float32 cannot hold; use float64");
  require_finite(&input_factor, 1, "input_factor");
  require_finite(&state_factor, 1, "state_factor");
  require_finite(&leak, 1, "leak");
  const Real zero_point = static_cast<Real>(1 << (bits - 1));
  new (self) Sequence<Real>{weights_object,
                            weights,
                            inputs,
                            units,
                            digits,
                            zero_point - 1,
                            zero_point,
                            static_cast<Real>(input_factor),
                            static_cast<Real>(state_factor),
                            finite_row<Real>(scale, "scale", units),
                            finite_row<Real>(row_sum, "row_sum", units),
                            finite_row<Real>(bias, "bias", units),
                            static_cast<Real>(leak),
                            row_product(path.c_str()),
                            activation_named(activation.c_str())};
}

// states[t] = the state after row t of u; `state` is moved to the last one.
template <class Real>
void run_rows(const Sequence<Real>& s, nb::handle u_object, nb::handle state_object, nb::handle states_object) {
  const In<Real> u(u_object, "u", {any, s.inputs});
  const Out<Real> state(state_object, "state", {s.units});
  const Out<Real> states(states_object, "states", {u.extent(0), s.units});
  require_finite(u.data(), u.size(), "u");
  require_finite(state.data(), state.size(), "state");
  nb::gil_scoped_release release;
  run_any(s, u.data(), u.extent(0), state.data(), states.data());
}

// One step in place; half a microsecond of work, so the GIL is kept.
template <class Real>
void run_step(const Sequence<Real>& s, nb::handle u_object, nb::handle state_object) {
  const In<Real> u(u_object, "u", {s.inputs});
  const Out<Real> state(state_object, "state", {s.units});
  require_finite(u.data(), u.size(), "u");
  require_finite(state.data(), state.size(), "state");
  run_any<Real>(s, u.data(), 1, state.data(), nullptr);
}

template <class Real>
void bind_sequence(nb::module_& m, const char* name) {
  using nb::literals::operator""_a;
  nb::class_<Sequence<Real>>(m, name)
      .def("__init__", &make_sequence<Real>, "weights"_a, "inputs"_a, "scale"_a.none(), "row_sum"_a.none(),
           "bias"_a.none(), "digits"_a, "bits"_a, "input_factor"_a, "state_factor"_a, "leak"_a, "activation"_a,
           "path"_a)
      .def("run", &run_rows<Real>, "u"_a.none(), "state"_a.none(), "states"_a.none())
      .def("step", &run_step<Real>, "u"_a.none(), "state"_a.none());
}

}  // namespace

void bind_npu(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<TiledWeights>(m, "NpuWeights")
      .def(nb::init<nb::handle>(), "weights"_a.none())
      .def_prop_ro("inputs", &TiledWeights::inputs)
      .def_prop_ro("units", &TiledWeights::units);
  m.def("npu_product", &product, "weights"_a, "x"_a.none(), "out"_a.none(), "x_max"_a, "potential_bits"_a, "path"_a);
  bind_sequence<double>(m, "NpuSequence_f64");
  bind_sequence<float>(m, "NpuSequence_f32");
}

}  // namespace mf::bindings
