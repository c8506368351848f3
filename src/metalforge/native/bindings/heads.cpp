// Affine maps, and outputs to values of heads: value = offset + scale f(y), with f of the head that an output belongs
// to.
#include "decoder.hpp"

namespace mf::bindings {
namespace {

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
