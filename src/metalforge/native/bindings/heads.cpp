// Many heads on one reservoir: a readout in one order of its terms, and outputs to values of heads.
//
//   y = b + W [s; u]                           b, then states, then inputs, each by its number, a multiply-add a term
//   value = offset + scale f(y)                f of the head that the output belongs to
//
// So a sample alone and in a batch has the same bits.
#include <algorithm>
#include <vector>

#include "activations.hpp"
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

// W by lines: the weights of all outputs side by side, padded to whole vectors.
template <class Real>
class Readout {
 public:
  using R = Native<Real>;
  static constexpr int lanes = native_lanes<Real>;

  Readout(nb::handle w_object, nb::handle bias_object, int states) {
    const In<Real> w(w_object, "w_out", {any, any});
    outputs_ = static_cast<int>(w.extent(0));
    lines_ = static_cast<int>(w.extent(1));
    states_ = states;
    if (states < 1 || states > lines_) throw nb::value_error("`states` must be of the columns of `w_out`");
    const In<Real> bias(bias_object, "bias", {outputs_});
    require_finite(w.data(), w.size(), "w_out");
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
  int states() const { return states_; }
  int inputs() const { return lines_ - states_; }

  // y[r] of `Rows` samples, (padded) apart; several at once hide the latency of a chain of multiply-adds.
  template <int Rows>
  void rows(const Real* s, const Real* u, Real* y) const {
    for (int o = 0; o < padded_; o += lanes) {
      R acc[Rows];
      MF_UNROLL
      for (int r = 0; r < Rows; ++r) acc[r] = LaneTraits<R>::load(bias_.data() + o);
      const Real* w = weights_.data() + o;
      const auto add = [&](const Real* x, int n) {
        for (int k = 0; k < n; ++k, w += padded_) {
          const R weights = LaneTraits<R>::load(w);
          MF_UNROLL
          for (int r = 0; r < Rows; ++r) acc[r] = mul_add(weights, R(x[static_cast<i64>(r) * n + k]), acc[r]);
        }
      };
      add(s, states_);
      add(u, inputs());
      MF_UNROLL
      for (int r = 0; r < Rows; ++r) LaneTraits<R>::store(acc[r], y + static_cast<i64>(r) * padded_ + o);
    }
  }

  // done(sample, y) for every sample.
  template <class Done>
  void each(const Real* s, const Real* u, i64 samples, Done&& done) const {
    constexpr int together = 4;
    static thread_local std::vector<Real> y;
    y.resize(static_cast<std::size_t>(together * padded_));
    i64 b = 0;
    for (; b + together <= samples; b += together) {
      rows<together>(s + b * states_, u + b * inputs(), y.data());
      for (int r = 0; r < together; ++r) done(b + r, y.data() + static_cast<i64>(r) * padded_);
    }
    for (; b < samples; ++b) {
      rows<1>(s + b * states_, u + b * inputs(), y.data());
      done(b, y.data());
    }
  }

 private:
  int outputs_, lines_, states_, padded_;
  std::vector<Real> weights_, bias_;
};

// A state and, where the readout sees them, inputs: one sample or a batch, checked.
template <class Real, class Read>
void read_rows(const Readout<Real>& readout, nb::handle state_object, nb::handle u_object, Read&& read) {
  const In<Real> state(state_object, "state", {maybe, readout.states()});
  const bool batch = state.rank() == 2;
  const Py_ssize_t samples = batch ? state.extent(0) : 1;
  if (readout.inputs() == 0) return read(state.data(), state.data(), samples, batch);
  const In<Real> u(u_object, "u", batch ? Shape{samples, readout.inputs()} : Shape{readout.inputs()});
  check_finite(u.data(), u.size(), "u");
  read(state.data(), u.data(), samples, batch);
}

template <class Real>
void outputs_of(const Readout<Real>& readout, nb::handle state, nb::handle u, nb::handle out_object) {
  read_rows<Real>(readout, state, u, [&](const Real* s, const Real* x, Py_ssize_t samples, bool batch) {
    const Py_ssize_t n = readout.outputs();
    const Out<Real> out(out_object, "out", batch ? Shape{samples, n} : Shape{n});
    readout.each(s, x, samples, [&](i64 b, const Real* y) { std::copy_n(y, n, out.data() + b * n); });
  });
}

template <class Real>
void values_of(const Readout<Real>& readout, nb::handle state, nb::handle u, const Decoder& decoder,
               nb::handle out_object) {
  if (decoder.width() != readout.outputs()) throw nb::value_error("`decoder` is for another number of outputs");
  read_rows<Real>(readout, state, u, [&](const Real* s, const Real* x, Py_ssize_t samples, bool batch) {
    const Py_ssize_t n = readout.outputs();
    const Out<double> out(out_object, "out", batch ? Shape{samples, n} : Shape{n});
    readout.each(s, x, samples, [&](i64 b, const Real* y) { decoder.row(y, out.data() + b * n); });
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
void bind_readout(nb::module_& m, const char* name) {
  using nb::literals::operator""_a;
  nb::class_<Readout<Real>>(m, name)
      .def(nb::init<nb::handle, nb::handle, int>(), "w_out"_a.none(), "bias"_a.none(), "states"_a)
      .def("outputs", &outputs_of<Real>, "state"_a.none(), "u"_a.none(), "out"_a.none())
      .def("values", &values_of<Real>, "state"_a.none(), "u"_a.none(), "decoder"_a, "out"_a.none());
}

}  // namespace

void bind_heads(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Decoder>(m, "HeadDecoder")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle>(), "kinds"_a.none(), "starts"_a.none(),
           "widths"_a.none(), "scale"_a.none(), "offset"_a.none())
      .def("decode_f64", &decode<double>, "y"_a.none(), "out"_a.none())
      .def("decode_f32", &decode<float>, "y"_a.none(), "out"_a.none());
  bind_readout<double>(m, "Readout_f64");
  bind_readout<float>(m, "Readout_f32");
}

}  // namespace mf::bindings
