// Drivers of the NPU's integer product.
#include "npu_weights.hpp"

namespace mf::bindings {
namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

void bind_npu(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<TiledWeights>(m, "NpuWeights")
      .def(nb::init<nb::handle>(), "weights"_a.none())
      .def_prop_ro("inputs", &TiledWeights::inputs)
      .def_prop_ro("units", &TiledWeights::units);
  m.def("npu_product", &product, "weights"_a, "x"_a.none(), "out"_a.none(), "x_max"_a, "potential_bits"_a, "path"_a);
}

}  // namespace mf::bindings
