// Checked views of Python arguments. Arguments are bound with .none(), so that even None reaches the check that names
// it. Every entry point goes through these before it touches memory; each failure is a Python exception that names the
// argument, what was wanted and what came.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "platform.hpp"

namespace mf::bindings {

namespace nb = nanobind;

template <class T>
struct TypeName;
template <>
struct TypeName<double> {
  static constexpr const char *name = "float64", *codes = "d";
};
template <>
struct TypeName<float> {
  static constexpr const char *name = "float32", *codes = "f";
};
template <>
struct TypeName<unsigned char> {
  static constexpr const char *name = "uint8", *codes = "B";
};
template <>
struct TypeName<signed char> {
  static constexpr const char *name = "int8", *codes = "b";
};
template <>
struct TypeName<i32> {
  static constexpr const char *name = "int32", *codes = "il";
};
template <>
struct TypeName<u32> {
  static constexpr const char *name = "uint32", *codes = "IL";
};

// A wanted extent; `any` accepts whatever comes, as long as it is not zero. `maybe`, as the first one, is an axis of
// any extent that need not be there: a single sample, or a batch of them.
inline constexpr Py_ssize_t any = -1, maybe = -2;
using Shape = std::vector<Py_ssize_t>;

std::string describe(const Shape& shape);

// A C-contiguous, aligned, native-endian buffer of T, held while this object lives.
class BufferBase {
 public:
  BufferBase(const BufferBase&) = delete;
  BufferBase& operator=(const BufferBase&) = delete;
  ~BufferBase() { PyBuffer_Release(&view_); }
  Py_ssize_t extent(int axis) const { return view_.shape[axis]; }
  Py_ssize_t size() const { return view_.len / view_.itemsize; }
  int rank() const { return view_.ndim; }
  Shape shape() const { return Shape(view_.shape, view_.shape + view_.ndim); }

 protected:
  BufferBase(nb::handle object, const char* argument, const char* type_name, const char* codes, Py_ssize_t item_size,
             std::size_t alignment, const Shape& wanted, bool writable);
  Py_buffer view_;
};

template <class T>
class In : public BufferBase {
 public:
  In(nb::handle object, const char* argument, const Shape& wanted)
      : BufferBase(object, argument, TypeName<T>::name, TypeName<T>::codes, sizeof(T), alignof(T), wanted, false) {}
  const T* data() const { return static_cast<const T*>(view_.buf); }
};

template <class T>
class Out : public BufferBase {
 public:
  Out(nb::handle object, const char* argument, const Shape& wanted)
      : BufferBase(object, argument, TypeName<T>::name, TypeName<T>::codes, sizeof(T), alignof(T), wanted, true) {}
  T* data() const { return static_cast<T*>(view_.buf); }
};

// More threads than any machine has cores; an OpenMP runtime that cannot create its threads ends the process.
inline constexpr int max_threads = 1024;

// An integer in [0, maximum].
u64 unsigned_argument(nb::handle object, const char* argument, u64 maximum);
int thread_argument(nb::handle object);

// Raises ValueError with the position of the first value that is not finite; returns when all are.
void require_finite(const double* x, Py_ssize_t n, const char* argument);
void require_finite(const float* x, Py_ssize_t n, const char* argument);

void bind_random(nb::module_& m);
void bind_df64(nb::module_& m);
void bind_reduce(nb::module_& m);
void bind_simd(nb::module_& m);
void bind_ceilings(nb::module_& m);
void bind_npu(nb::module_& m);
void bind_npu_sequence(nb::module_& m);
void bind_esn(nb::module_& m);
void bind_heads(nb::module_& m);
void bind_lattice_update(nb::module_& m);
void bind_lattice_measure(nb::module_& m);
void bind_staggered(nb::module_& m);
void bind_staggered_solver(nb::module_& m);
void bind_plasma(nb::module_& m);
void bind_frames(nb::module_& m);

}  // namespace mf::bindings
