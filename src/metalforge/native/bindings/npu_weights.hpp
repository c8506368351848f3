// The weights of an NPU layer in tiles, and the products of a row with them: what the drivers of npu.cpp and
// npu_sequence.cpp share.
#pragma once

#include <string>
#include <vector>

#include "arguments.hpp"
#include "npu.hpp"

namespace mf::bindings {

using u8 = unsigned char;
using i8 = signed char;

// out[16 * tiles] = x W for one row of inputs.
using RowProduct = void (*)(const u8*, int, int, const i8*, i32*);

// The product by name: auto, vnni, pairs or portable.
RowProduct row_product(const std::string& path);

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

}  // namespace mf::bindings
