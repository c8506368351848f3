// Outputs of a readout to values of heads: value = offset + scale f(y), with f of the head that an output belongs to.
#pragma once

#include <algorithm>
#include <vector>

#include "activations.hpp"
#include "affine.hpp"
#include "finite.hpp"

namespace mf::bindings {

// In the order of `HeadActivation` in core/schema.py.
enum Kind { identity, sigmoid, softmax, relu, tanh_kind, n_kinds };

// What becomes of outputs (width,): the kind of each, and where the classes of its softmax start and how many they are.
class Decoder {
 public:
  using R = Native<double>;
  static constexpr int lanes = native_lanes<double>;

  Decoder(nb::handle kinds, nb::handle starts, nb::handle widths, nb::handle scale, nb::handle offset) {
    const In<i32> kind(kinds, "kinds", {any});
    width_ = static_cast<int>(kind.extent(0));
    const In<i32> start(starts, "starts", {width_}), count(widths, "widths", {width_});
    const In<double> scales(scale, "scale", {width_}), offsets(offset, "offset", {width_});
    require_finite(scales.data(), scales.size(), "scale");
    require_finite(offsets.data(), offsets.size(), "offset");
    padded_ = (width_ + lanes - 1) / lanes * lanes;
    for (auto& mask : masks_) mask.assign(static_cast<std::size_t>(padded_), 0);
    scale_.assign(static_cast<std::size_t>(padded_), 1.0);
    offset_.assign(static_cast<std::size_t>(padded_), 0.0);
    for (int j = 0; j < width_; ++j) {
      const i32 first = start.data()[j], n = count.data()[j];
      if (kind.data()[j] < 0 || kind.data()[j] >= n_kinds) throw nb::value_error("`kinds` must lie in 0 .. 4");
      if (n < 1 || first < 0 || first > j || first + n <= j || first + n > width_)
        throw nb::value_error("`starts` and `widths` must enclose each output's own place");
      // exp(a) / (exp(a) + exp(b)) is a sigmoid of the difference.
      const bool pair = kind.data()[j] == softmax && n == 2;
      if (pair && j == first) pairs_.push_back(first);
      if (kind.data()[j] == softmax && n != 2 && j == first) classes_.push_back({first, n});
      const int f = pair ? sigmoid : kind.data()[j];
      masks_[f][static_cast<std::size_t>(j)] = -1;
      used_[f] = true;
      scale_[static_cast<std::size_t>(j)] = scales.data()[j];
      offset_[static_cast<std::size_t>(j)] = offsets.data()[j];
    }
  }

  int width() const { return width_; }

  // out = the values of one row of outputs.
  template <class Real>
  void row(const Real* y, double* out) const {
    static thread_local std::vector<double> values;
    values.assign(static_cast<std::size_t>(padded_), 0.0);
    for (int j = 0; j < width_; ++j) values[static_cast<std::size_t>(j)] = static_cast<double>(y[j]);
    double* x = values.data();
    for (const int first : pairs_) {
      const double difference = x[first] - x[first + 1];
      x[first] = difference;
      x[first + 1] = -difference;
    }
    for (int i = 0; i < padded_; i += lanes) {
      const R given = LaneTraits<R>::load(x + i), zero(0.0);
      R value = given;
      const auto apply = [&](int kind, auto f) {
        if (used_[kind]) value = select(Mask::load(masks_[kind].data() + i), f(given), value);
      };
      apply(sigmoid, [](R v) { return sigmoid_of(v); });
      apply(relu, [&](R v) { return select(v < zero, zero, v); });
      apply(tanh_kind, [](R v) { return tanh_of(v); });
      LaneTraits<R>::store(select(given == given, value, given), x + i);  // what is not a number stays so
    }
    for (const auto& [first, n] : classes_) {
      const double largest = *std::max_element(x + first, x + first + n);
      double sum = 0;
      for (int j = first; j < first + n; ++j) {
        x[j] = 1 / (1 + expm1_positive(std::min(largest - x[j], 80.0)));
        sum += x[j];
      }
      for (int j = first; j < first + n; ++j) x[j] /= sum;
    }
    for (int i = 0; i < padded_; i += lanes)
      LaneTraits<R>::store(
          LaneTraits<R>::load(x + i) * LaneTraits<R>::load(scale_.data() + i) + LaneTraits<R>::load(offset_.data() + i),
          x + i);
    std::copy_n(x, width_, out);
  }

 private:
  using Mask = Simd<i64, lanes>;
  struct Classes {
    int first, n;
  };
  int width_, padded_;
  std::vector<i64> masks_[n_kinds];
  bool used_[n_kinds] = {};
  std::vector<double> scale_, offset_;
  std::vector<int> pairs_;
  std::vector<Classes> classes_;
};

}  // namespace mf::bindings
