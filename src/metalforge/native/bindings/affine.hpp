// Affine maps in one order of their terms: y = b + W [x; z] begins with b, then x, then z, each by its number, with a
// multiply-add a term. So a sample alone and in a batch has the same bits.
#pragma once

#include <algorithm>
#include <vector>

#include "arguments.hpp"
#include "simd.hpp"

namespace mf::bindings {

// W by lines: the weights of all outputs side by side, padded to whole vectors.
template <class Real>
class Affine {
 public:
  using R = Native<Real>;
  static constexpr int lanes = native_lanes<Real>;

  Affine(nb::handle w_object, nb::handle bias_object, int first) {
    const In<Real> w(w_object, "w", {any, any});
    outputs_ = static_cast<int>(w.extent(0));
    lines_ = static_cast<int>(w.extent(1));
    first_ = first;
    if (first < 1 || first > lines_) throw nb::value_error("`first` must be of the columns of `w`");
    const In<Real> bias(bias_object, "bias", {outputs_});
    require_finite(w.data(), w.size(), "w");
    require_finite(bias.data(), bias.size(), "bias");
    padded_ = (outputs_ + lanes - 1) / lanes * lanes;
    weights_.assign(static_cast<std::size_t>(lines_) * static_cast<std::size_t>(padded_), Real(0));
    bias_.assign(static_cast<std::size_t>(padded_), Real(0));
    std::copy_n(bias.data(), outputs_, bias_.begin());
    for (int o = 0; o < outputs_; ++o)
      for (int k = 0; k < lines_; ++k)
        weights_[static_cast<std::size_t>(k) * static_cast<std::size_t>(padded_) + static_cast<std::size_t>(o)] =
            w.data()[static_cast<i64>(o) * lines_ + k];
  }

  int outputs() const { return outputs_; }
  int first() const { return first_; }
  int second() const { return lines_ - first_; }

  int padded() const { return padded_; }

  // y[r] of `Rows` samples, (padded) apart, for `Vectors` vectors of outputs at a time, then for one: sums side by side
  // hide the latency of a chain of multiply-adds.
  template <int Rows, int Vectors>
  void rows(const Real* x, const Real* z, Real* y) const {
    int o = 0;
    for (; o + Vectors * lanes <= padded_; o += Vectors * lanes) some<Rows, Vectors>(x, z, y, o);
    for (; o < padded_; o += lanes) some<Rows, 1>(x, z, y, o);
  }

  template <int Rows, int Vectors>
  void some(const Real* x, const Real* z, Real* y, int o) const {
    R acc[Rows][Vectors];
    MF_UNROLL
    for (int r = 0; r < Rows; ++r) {
      MF_UNROLL
      for (int v = 0; v < Vectors; ++v) acc[r][v] = LaneTraits<R>::load(bias_.data() + o + v * lanes);
    }
    const Real* w = weights_.data() + o;
    const auto add = [&](const Real* part, int n) {
      for (int k = 0; k < n; ++k, w += padded_) {
        MF_UNROLL
        for (int r = 0; r < Rows; ++r) {
          const R given(part[static_cast<i64>(r) * n + k]);
          MF_UNROLL
          for (int v = 0; v < Vectors; ++v) acc[r][v] = mul_add(LaneTraits<R>::load(w + v * lanes), given, acc[r][v]);
        }
      }
    };
    add(x, first_);
    add(z, second());
    MF_UNROLL
    for (int r = 0; r < Rows; ++r) {
      MF_UNROLL
      for (int v = 0; v < Vectors; ++v)
        LaneTraits<R>::store(acc[r][v], y + static_cast<i64>(r) * padded_ + o + v * lanes);
    }
  }

  // done(sample, y) for every sample.
  template <class Done>
  void each(const Real* x, const Real* z, i64 samples, Done&& done) const {
    constexpr int together = 4;
    static thread_local std::vector<Real> y;
    y.resize(static_cast<std::size_t>(together * padded_));
    i64 b = 0;
    for (; b + together <= samples; b += together) {
      rows<together, 2>(x + b * first_, z + b * second(), y.data());
      for (int r = 0; r < together; ++r) done(b + r, y.data() + static_cast<i64>(r) * padded_);
    }
    for (; b < samples; ++b) {
      rows<1, 8>(x + b * first_, z + b * second(), y.data());
      done(b, y.data());
    }
  }

 private:
  int outputs_, lines_, first_, padded_;
  std::vector<Real> weights_, bias_;
};

}  // namespace mf::bindings
