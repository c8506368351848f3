#include <cmath>
#include <cstring>

#include "arguments.hpp"
#include "simd.hpp"

namespace mf::bindings {

std::string describe(const Shape& shape) {
  if (!shape.empty() && shape[0] == maybe) {
    const Shape rest(shape.begin() + 1, shape.end());
    Shape whole = shape;
    whole[0] = any;
    return describe(rest) + " or " + describe(whole);
  }
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += shape[i] == any ? std::string("n") : std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

namespace {

[[noreturn]] void raise(PyObject* kind, const std::string& message) {
  PyErr_SetString(kind, message.c_str());
  throw nb::python_error();
}

std::string type_of(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

// A buffer format such as "<d": true when it is one of `codes` in this machine's byte order.
bool format_matches(const char* format, const char* codes) {
  if (!format) return false;
  if (*format == '@' || *format == '=' || *format == (std::endian::native == std::endian::little ? '<' : '>')) ++format;
  return format[0] != '\0' && format[1] == '\0' && std::strchr(codes, format[0]) != nullptr;
}

// "L" is eight bytes on Linux in native format, hence the item size is checked too.
std::string format_name(const Py_buffer& view) {
  return std::string("items of format '") + (view.format ? view.format : "B") + "' (" + std::to_string(view.itemsize) +
         " bytes)";
}

}  // namespace

BufferBase::BufferBase(nb::handle object, const char* argument, const char* type_name, const char* codes,
                       Py_ssize_t item_size, std::size_t alignment, const Shape& wanted, bool writable) {
  // Written only when it is needed: a step of a reservoir takes as long as four of these sentences.
  const auto wants = [&] {
    return std::string("`") + argument + "` must be a C-contiguous array of " + type_name + " with shape " +
           describe(wanted) + ". Got ";
  };
  if (!PyObject_CheckBuffer(object.ptr())) raise(PyExc_TypeError, wants() + "an object of type " + type_of(object));
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    raise(PyExc_TypeError, wants() + "an array whose memory cannot be read as a buffer");
  }
  const auto fail = [&](PyObject* kind, const std::string& what) {
    PyBuffer_Release(&view_);
    raise(kind, what);
  };
  if (!format_matches(view_.format, codes) || view_.itemsize != item_size)
    fail(PyExc_TypeError, wants() + format_name(view_));
  const int axes = static_cast<int>(wanted.size());
  const int absent = axes > 0 && wanted[0] == maybe && view_.ndim == axes - 1;  // axes of `wanted` that did not come
  bool matches = view_.ndim == axes - absent, empty = false;
  for (int i = 0; matches && i < view_.ndim; ++i) {
    const Py_ssize_t want = wanted[static_cast<std::size_t>(i + absent)];
    matches = want < 0 || want == view_.shape[i];
    empty = empty || view_.shape[i] == 0;
  }
  if (!matches) fail(PyExc_ValueError, wants() + "shape " + describe(shape()));
  if (empty) fail(PyExc_ValueError, wants() + "an empty array of shape " + describe(shape()));
  if (!PyBuffer_IsContiguous(&view_, 'C'))
    fail(PyExc_ValueError, wants() + "a strided or Fortran-ordered array; hint: pass numpy.ascontiguousarray(...)");
  if (reinterpret_cast<std::uintptr_t>(view_.buf) % alignment != 0)
    fail(PyExc_ValueError, wants() + "memory that is not aligned to " + std::to_string(alignment) + " bytes");
  if (writable && view_.readonly)
    fail(PyExc_ValueError, std::string("`") + argument + "` is written to, but the array is read-only");
}

u64 unsigned_argument(nb::handle object, const char* argument, u64 maximum) {
  const std::string wants =
      std::string("`") + argument + "` must be an integer in [0, " + std::to_string(maximum) + "]. Got ";
  // __index__ takes Python and NumPy integers and refuses floats; bool is an int to Python but never a seed.
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr()))
    raise(PyExc_TypeError, wants + "an object of type " + type_of(object));
  const nb::object integer = nb::steal(PyNumber_Index(object.ptr()));
  if (!integer.is_valid()) {
    PyErr_Clear();
    raise(PyExc_TypeError, wants + "an object of type " + type_of(object));
  }
  const u64 value = PyLong_AsUnsignedLongLong(integer.ptr());
  if (PyErr_Occurred() || value > maximum) {
    PyErr_Clear();
    raise(PyExc_ValueError, wants + nb::str(integer).c_str());
  }
  return value;
}

int thread_argument(nb::handle object) {
  const int threads = static_cast<int>(unsigned_argument(object, "threads", max_threads));
  if (threads == 0) raise(PyExc_ValueError, "`threads` must be at least 1. Got 0");
  return threads;
}

namespace {
template <class T>
void require_finite_of(const T* x, Py_ssize_t n, const char* argument) {
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!std::isfinite(x[i]))
      raise(PyExc_ValueError, std::string("`") + argument + "` must hold finite numbers. Got " +
                                  (std::isnan(x[i]) ? "nan"
                                   : x[i] > 0       ? "inf"
                                                    : "-inf") +
                                  " at flat index " + std::to_string(i));
}
}  // namespace

void require_finite(const double* x, Py_ssize_t n, const char* argument) { require_finite_of(x, n, argument); }
void require_finite(const float* x, Py_ssize_t n, const char* argument) { require_finite_of(x, n, argument); }

}  // namespace mf::bindings

NB_MODULE(MF_MODULE, m) {
  using namespace mf::bindings;
  m.doc() = "metalforge kernels, one build level";
  m.attr("level") = MF_LEVEL;
  m.attr("vector_bytes") = mf::vector_bytes;
  m.attr("max_threads") = max_threads;
  m.attr("has_fma") = mf::has_fma;
#ifdef _OPENMP
  m.attr("openmp") = true;
#else
  m.attr("openmp") = false;
#endif
  bind_random(m);
  bind_df64(m);
  bind_reduce(m);
  bind_simd(m);
  bind_ceilings(m);
  bind_npu(m);
  bind_npu_sequence(m);
  bind_esn(m);
  bind_heads(m);
  bind_lattice_update(m);
  bind_lattice_measure(m);
  bind_staggered(m);
  bind_staggered_solver(m);
  bind_plasma(m);
  bind_frames(m);
}
