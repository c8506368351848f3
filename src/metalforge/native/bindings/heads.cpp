// Affine maps, and outputs to values of heads: value = offset + scale f(y), with f of the head that an output belongs
// to.
#include <algorithm>
#include <vector>

#include "activations.hpp"
#include "affine.hpp"
#include "finite.hpp"

namespace mf::bindings {
namespace {

enum Kind { identity, sigmoid, relu, tanh_kind, softmax, n_kinds };

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

// x and, where the map has a second part, z: one sample or a batch, checked.
template <class Real, class Read>
void read_rows(const Affine<Real>& map, nb::handle x_object, nb::handle z_object, Read&& read) {
  const In<Real> x(x_object, "x", {maybe, map.first()});
  const bool batch = x.rank() == 2;
  const Py_ssize_t samples = batch ? x.extent(0) : 1;
  if (map.second() == 0) return read(x.data(), x.data(), samples, batch);
  const In<Real> z(z_object, "z", batch ? Shape{samples, map.second()} : Shape{map.second()});
  check_finite(z.data(), z.size(), "z");
  read(x.data(), z.data(), samples, batch);
}

template <class Real>
void outputs_of(const Affine<Real>& map, nb::handle x, nb::handle z, nb::handle out_object) {
  read_rows<Real>(map, x, z, [&](const Real* first, const Real* second, Py_ssize_t samples, bool batch) {
    const Py_ssize_t n = map.outputs();
    const Out<Real> out(out_object, "out", batch ? Shape{samples, n} : Shape{n});
    map.each(first, second, samples, [&](i64 b, const Real* y) { std::copy_n(y, n, out.data() + b * n); });
  });
}

template <class Real>
void values_of(const Affine<Real>& map, nb::handle x, nb::handle z, const Decoder& decoder, nb::handle out_object) {
  if (decoder.width() != map.outputs()) throw nb::value_error("`decoder` is for another number of outputs");
  read_rows<Real>(map, x, z, [&](const Real* first, const Real* second, Py_ssize_t samples, bool batch) {
    const Py_ssize_t n = map.outputs();
    const Out<double> out(out_object, "out", batch ? Shape{samples, n} : Shape{n});
    map.each(first, second, samples, [&](i64 b, const Real* y) { decoder.row(y, out.data() + b * n); });
  });
}

// out (rows, width) = the values of outputs (rows, width).
template <class Real>
void decode(const Decoder& decoder, nb::handle y_object, nb::handle out_object) {
  const In<Real> y(y_object, "y", {maybe, decoder.width()});
  const Out<double> out(out_object, "out", y.shape());
  for (i64 i = 0; i < y.size(); i += decoder.width()) decoder.row(y.data() + i, out.data() + i);
}

template <class Real>
void bind_affine(nb::module_& m, const char* name) {
  using nb::literals::operator""_a;
  nb::class_<Affine<Real>>(m, name)
      .def(nb::init<nb::handle, nb::handle, int>(), "w"_a.none(), "bias"_a.none(), "first"_a)
      .def("outputs", &outputs_of<Real>, "x"_a.none(), "z"_a.none(), "out"_a.none())
      .def("values", &values_of<Real>, "x"_a.none(), "z"_a.none(), "decoder"_a, "out"_a.none());
}

}  // namespace

void bind_heads(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Decoder>(m, "HeadDecoder")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle>(), "kinds"_a.none(), "starts"_a.none(),
           "widths"_a.none(), "scale"_a.none(), "offset"_a.none())
      .def("decode_f64", &decode<double>, "y"_a.none(), "out"_a.none())
      .def("decode_f32", &decode<float>, "y"_a.none(), "out"_a.none());
  bind_affine<double>(m, "Affine_f64");
  bind_affine<float>(m, "Affine_f32");
}

}  // namespace mf::bindings
