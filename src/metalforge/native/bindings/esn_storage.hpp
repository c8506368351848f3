// The weights of an echo state network, checked and laid out once for the kernels of esn.hpp.
#pragma once

#include <algorithm>
#include <new>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "esn.hpp"

namespace mf::bindings {

// A vector that starts at a cache line: a load that straddles two lines costs twice.
template <class T>
struct CacheLines {
  using value_type = T;
  static constexpr std::align_val_t line{64};
  CacheLines() = default;
  template <class U>
  CacheLines(const CacheLines<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, line); }
  friend bool operator==(CacheLines, CacheLines) { return true; }
};
template <class T>
using Aligned = std::vector<T, CacheLines<T>>;

[[noreturn]] inline void refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

// Units first .. first + vectors * lanes; where their weights and columns start.
struct Panel {
  i64 first, values, columns;
  int vectors;
};

// A dense or block-sparse matrix as panels: values[panel][k][unit of the panel], columns[panel][k][block of the panel].
template <class Real>
struct Panels {
  static constexpr i64 lanes = native_lanes<Real>;
  i64 units = 0, count = 0, padded = 0;  // `count` columns are stored a unit; `padded` units are stored in all
  bool sparse = false;
  std::vector<Panel> list;
  Aligned<Real> values;
  std::vector<i32> columns;

  Panels() = default;
  // Full panels of four vectors, then one of 4, 2 or 1 for what is left.
  Panels(i64 units_, i64 count_, bool sparse_) : units(units_), count(count_), sparse(sparse_) {
    i64 n_columns = 0;
    while (padded < units) {
      const i64 left = (units - padded + lanes - 1) / lanes;
      const int vectors = left > 2 ? panel_vectors : static_cast<int>(left);
      list.push_back({padded, padded * count, n_columns, vectors});
      padded += vectors * lanes;
      if (sparse) n_columns += count * std::max<i64>(1, vectors * lanes / sparse_block);
    }
    values.assign(static_cast<std::size_t>(padded * count), Real(0));
    columns.assign(static_cast<std::size_t>(n_columns), 0);
  }

  // Stores matrix(unit, k), and column(block, k) where the matrix is sparse.
  template <class Value, class Column>
  void fill(Value&& value, Column&& column) {
    for (const Panel& panel : list) {
      const i64 width = panel.vectors * lanes, last = std::min(panel.first + width, units);
      const i64 blocks = std::max<i64>(1, width / sparse_block);
      for (i64 k = 0; k < count; ++k) {
        for (i64 unit = panel.first; unit < last; ++unit)
          values[static_cast<std::size_t>(panel.values + k * width + unit - panel.first)] = value(unit, k);
        for (i64 b = 0; sparse && b < blocks; ++b)
          if (const i64 block = panel.first / sparse_block + b; block * sparse_block < units)
            columns[static_cast<std::size_t>(panel.columns + k * blocks + b)] = column(block, k);
      }
    }
  }
};

// A free sparse pattern. For one sample: slices of as many rows as a vector has lanes, padded with zeros to the longest
// row among them. For a batch: the rows as they are, and the input weights by rows.
template <class Real>
struct FreePattern {
  static constexpr i64 lanes = native_lanes<Real>;
  std::vector<i64> slice_starts;  // in vectors
  Aligned<Real> slice_values;
  std::vector<i32> slice_columns;
  std::vector<i32> row_starts, columns;
  std::vector<Real> values, input_rows;
};

template <class Real>
using Update = void (*)(const Real*, const Real*, Real*, i64, Real);

template <class Real>
Update<Real> update_named(const std::string& name) {
  if (name == "tanh") return leaky_update<Real, Activation::tanh>;
  if (name == "relu") return leaky_update<Real, Activation::relu>;
  if (name == "bounded_relu") return leaky_update<Real, Activation::bounded_relu>;
  if (name == "identity") return leaky_update<Real, Activation::identity>;
  if (name == "sigmoid") return leaky_update<Real, Activation::sigmoid>;
  if (name == "gelu") return leaky_update<Real, Activation::gelu>;
  if (name == "piecewise_tanh") return leaky_update<Real, Activation::piecewise_tanh>;
  refuse("`activation` must be tanh, relu, bounded_relu, identity, sigmoid, gelu or piecewise_tanh. Got " + name);
}

// Everything a step needs, whatever the recurrent matrix is.
template <class Real>
struct Network {
  i64 inputs, units, padded, row;  // `row`: from the state of one sample to the next, in scratch
  Panels<Real> w_in;
  Aligned<Real> bias;
  Real leak;
  Update<Real> update;
  int threads;
  bool free_pattern = false;
  Panels<Real> w_res;          // dense or block-sparse, or else
  FreePattern<Real> rows_res;  // CSR

  Network(nb::handle w_in_object, nb::handle bias_object, double leak_, const std::string& activation,
          nb::handle threads_object) {
    const In<Real> weights(w_in_object, "w_in", {any, any});
    units = weights.extent(0);
    inputs = weights.extent(1);
    constexpr i64 largest = 1 << 30;  // columns are 32-bit integers
    if (units > largest || inputs > largest) refuse("`w_in` must have at most 2^30 rows and columns");
    const In<Real> offsets(bias_object, "bias", {static_cast<Py_ssize_t>(units)});
    require_finite(weights.data(), weights.size(), "w_in");
    require_finite(offsets.data(), offsets.size(), "bias");
    if (!(leak_ > 0 && leak_ <= 1)) refuse("`leak` must be above 0 and at most 1. Got " + std::to_string(leak_));
    leak = static_cast<Real>(leak_);
    update = update_named<Real>(activation);
    threads = thread_argument(threads_object);
    w_in = Panels<Real>(units, inputs, false);
    w_in.fill([&](i64 unit, i64 k) { return weights.data()[unit * inputs + k]; }, [](i64, i64) { return 0; });
    padded = w_in.padded;
    // A line more than the units: rows a multiple of 4096 bytes apart would share a few sets of the cache.
    row = padded + 64 / static_cast<i64>(sizeof(Real));
    bias.assign(static_cast<std::size_t>(padded), Real(0));
    std::copy_n(offsets.data(), units, bias.begin());
  }

  void set_dense(nb::handle object) {
    const auto n = static_cast<Py_ssize_t>(units);
    const In<Real> w(object, "w_res", {n, n});
    require_finite(w.data(), w.size(), "w_res");
    w_res = Panels<Real>(units, units, false);
    w_res.fill([&](i64 unit, i64 k) { return w.data()[unit * units + k]; }, [](i64, i64) { return 0; });
  }

  void set_blocks(nb::handle columns_object, nb::handle values_object) {
    const auto blocks = static_cast<Py_ssize_t>((units + sparse_block - 1) / sparse_block);
    const In<i32> c(columns_object, "columns", {blocks, any});
    const In<Real> v(values_object, "values", {blocks, c.extent(1), sparse_block});
    require_finite(v.data(), v.size(), "values");
    require_columns(c, "columns");
    const i64 count = c.extent(1);
    w_res = Panels<Real>(units, count, true);
    w_res.fill([&](i64 unit,
                   i64 k) { return v.data()[(unit / sparse_block * count + k) * sparse_block + unit % sparse_block]; },
               [&](i64 block, i64 k) { return c.data()[block * count + k]; });
  }

  void set_csr(nb::handle w_in_object, nb::handle indptr_object, nb::handle indices_object, nb::handle data_object) {
    const In<i32> starts(indptr_object, "indptr", {static_cast<Py_ssize_t>(units) + 1});
    const In<i32> c(indices_object, "indices", {any});
    const In<Real> v(data_object, "data", {c.extent(0)});
    const i32* start = starts.data();
    if (start[0] != 0 || start[units] != c.extent(0))
      refuse("`indptr` must start at 0 and end at the number of `indices`, " + std::to_string(c.extent(0)));
    for (i64 i = 0; i < units; ++i)
      if (start[i + 1] < start[i]) refuse("`indptr` must not decrease. It does at " + std::to_string(i + 1));
    require_columns(c, "indices");
    require_finite(v.data(), v.size(), "data");
    const In<Real> weights(w_in_object, "w_in", {static_cast<Py_ssize_t>(units), static_cast<Py_ssize_t>(inputs)});
    free_pattern = true;
    auto& p = rows_res;
    p.row_starts.assign(start, start + units + 1);
    p.columns.assign(c.data(), c.data() + c.size());
    p.values.assign(v.data(), v.data() + v.size());
    p.input_rows.assign(weights.data(), weights.data() + weights.size());
    constexpr i64 lanes = native_lanes<Real>;
    p.slice_starts.push_back(0);
    for (i64 first = 0; first < units; first += lanes) {
      i64 length = 0;
      for (i64 i = first; i < std::min(first + lanes, units); ++i)
        length = std::max<i64>(length, start[i + 1] - start[i]);
      p.slice_starts.push_back(p.slice_starts.back() + length);
    }
    p.slice_values.assign(static_cast<std::size_t>(p.slice_starts.back() * lanes), Real(0));
    p.slice_columns.assign(p.slice_values.size(), 0);
    for (i64 i = 0; i < units; ++i)
      for (i64 k = start[i]; k < start[i + 1]; ++k) {
        const i64 at = (p.slice_starts[static_cast<std::size_t>(i / lanes)] + k - start[i]) * lanes + i % lanes;
        p.slice_values[static_cast<std::size_t>(at)] = v.data()[k];
        p.slice_columns[static_cast<std::size_t>(at)] = c.data()[k];
      }
  }

 private:
  void require_columns(const In<i32>& c, const char* argument) const {
    for (Py_ssize_t i = 0; i < c.size(); ++i)
      if (c.data()[i] < 0 || c.data()[i] >= units)
        refuse(std::string("`") + argument + "` must lie in 0 .. " + std::to_string(units - 1) + ". Got " +
               std::to_string(c.data()[i]) + " at flat index " + std::to_string(i));
  }
};

}  // namespace mf::bindings
