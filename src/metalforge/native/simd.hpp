// A vector of L lanes of T that behaves like one T.
//
// Kernels are templates over their real type; given a Simd they work on L sites at once, given a plain double they
// work on one (the CUDA thread, the scalar tail). On GCC and Clang the storage is a vector-extension type, so
// arithmetic compiles to single instructions; elsewhere it is an array of lanes.
//
// Floating-point contraction is off for the whole module: a*b + c rounds twice, mul_add(a, b, c) is the fast form
// (one rounding where the target has FMA, two where it has not), fma(a, b, c) always rounds once.
#pragma once

#include "platform.hpp"

#if !MF_CUDA
#include <cstddef>
#include <type_traits>
#include <utility>
#endif

namespace mf {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || MF_CUDA
inline constexpr bool has_fma = true;
#else
inline constexpr bool has_fma = false;
#endif

// Lanes of the widest register; a CUDA thread works on one site at a time.
template <class T>
inline constexpr int native_lanes = MF_CUDA ? 1 : vector_bytes / static_cast<int>(sizeof(T));

// The integer types that hold a mask or the bits of one lane.
template <class T>
struct LaneBits;
template <>
struct LaneBits<float> {
  using Signed = i32;
  using Unsigned = u32;
};
template <>
struct LaneBits<double> {
  using Signed = i64;
  using Unsigned = u64;
};
template <>
struct LaneBits<u32> : LaneBits<float> {};
template <>
struct LaneBits<i32> : LaneBits<float> {};
template <>
struct LaneBits<u64> : LaneBits<double> {};
template <>
struct LaneBits<i64> : LaneBits<double> {};
template <>
struct LaneBits<unsigned char> {
  using Signed = signed char;
  using Unsigned = unsigned char;
};
template <>
struct LaneBits<signed char> : LaneBits<unsigned char> {};

namespace detail {

#if MF_CUDA
// Stand-in for a vector-extension type: the same operators, lane by lane.
template <class T, int L>
struct Lanes {
  T lane[L];
  MF_INLINE T& operator[](int i) { return lane[i]; }
  MF_INLINE const T& operator[](int i) const { return lane[i]; }
  template <class F>
  static MF_INLINE Lanes zip(const Lanes& a, const Lanes& b, F f) {
    Lanes r;
    for (int i = 0; i < L; ++i) r[i] = f(a[i], b[i]);
    return r;
  }
  friend MF_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
    return zip(a, b, [](T x, T y) { return x + y; });
  }
  friend MF_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
    return zip(a, b, [](T x, T y) { return x - y; });
  }
  friend MF_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
    return zip(a, b, [](T x, T y) { return x * y; });
  }
  friend MF_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
    return zip(a, b, [](T x, T y) { return x / y; });
  }
  friend MF_INLINE Lanes operator-(const Lanes& a) {
    return zip(a, a, [](T x, T) { return -x; });
  }
};
template <class T, int L>
struct StorageOf {
  using type = Lanes<T, L>;
};
#else
template <class T, int L>
struct StorageOf {
  typedef T type __attribute__((vector_size(sizeof(T) * L)));
};
#endif

}  // namespace detail

template <class T, int L>
struct Simd {
  static_assert(L > 0 && (L & (L - 1)) == 0, "the number of lanes is a power of two");
  using value_type = T;
  using Storage = typename detail::StorageOf<T, L>::type;
  using Mask = Simd<typename LaneBits<T>::Signed, L>;  // all ones where true, zero where false
  using Bits = Simd<typename LaneBits<T>::Unsigned, L>;
  static constexpr int lanes = L;

  Storage v;

  Simd() = default;
  MF_INLINE Simd(Storage storage) : v(storage) {}
  MF_INLINE Simd(T scalar) {
#if MF_CUDA
    for (int i = 0; i < L; ++i) v[i] = scalar;
#else
    v = scalar - Storage{};  // x - 0 is x, signed zeros too: the compilers make one broadcast of it
#endif
  }

  MF_INLINE T operator[](int lane) const { return v[lane]; }
  MF_INLINE void set(int lane, T value) { v[lane] = value; }

  // Memory: no alignment is asked of p.
#if MF_CUDA
  static MF_INLINE Simd load(const T* p) { return load_first(p, L); }
  MF_INLINE void store(T* p) const { store_first(p, L); }
#else
  static MF_INLINE Simd load(const T* p) {
    Simd r;
    __builtin_memcpy(&r.v, p, sizeof(Storage));
    return r;
  }
  MF_INLINE void store(T* p) const { __builtin_memcpy(p, &v, sizeof(Storage)); }
#endif
  // Masked tails: the first n lanes, the rest is `fill`; nothing past p + n is touched.
  static MF_INLINE Simd load_first(const T* p, int n, T fill = T{}) {
    Simd r(fill);
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  MF_INLINE void store_first(T* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  // 0, 1, 2, ...
  static MF_INLINE Simd iota() {
    Simd r;
    for (int i = 0; i < L; ++i) r.v[i] = static_cast<T>(i);
    return r;
  }

  friend MF_INLINE Simd operator+(Simd a, Simd b) { return Storage(a.v + b.v); }
  friend MF_INLINE Simd operator-(Simd a, Simd b) { return Storage(a.v - b.v); }
  friend MF_INLINE Simd operator*(Simd a, Simd b) { return Storage(a.v * b.v); }
  friend MF_INLINE Simd operator/(Simd a, Simd b) { return Storage(a.v / b.v); }
  friend MF_INLINE Simd operator-(Simd a) { return Storage(-a.v); }
  MF_INLINE Simd& operator+=(Simd b) { return *this = *this + b; }
  MF_INLINE Simd& operator-=(Simd b) { return *this = *this - b; }
  MF_INLINE Simd& operator*=(Simd b) { return *this = *this * b; }

#if !MF_CUDA
  friend MF_INLINE Simd operator&(Simd a, Simd b) { return Storage(a.v & b.v); }
  friend MF_INLINE Simd operator|(Simd a, Simd b) { return Storage(a.v | b.v); }
  friend MF_INLINE Simd operator^(Simd a, Simd b) { return Storage(a.v ^ b.v); }
  MF_INLINE Simd& operator^=(Simd b) { return *this = *this ^ b; }
  friend MF_INLINE Simd operator<<(Simd a, int s) { return Storage(a.v << s); }
  friend MF_INLINE Simd operator>>(Simd a, int s) { return Storage(a.v >> s); }
  // A mask as plain bits: all ones (which is -1) where it is true.
  MF_INLINE Bits as_unsigned() const { return bit_cast<typename Bits::Storage>(v); }
  friend MF_INLINE Mask operator<(Simd a, Simd b) { return typename Mask::Storage(a.v < b.v); }
  friend MF_INLINE Mask operator>=(Simd a, Simd b) { return typename Mask::Storage(a.v >= b.v); }
  friend MF_INLINE Mask operator==(Simd a, Simd b) { return typename Mask::Storage(a.v == b.v); }
#endif
};

// What kernels work on at once: the widest vector here, a plain number in a CUDA thread.
#if MF_CUDA
template <class T>
using Native = T;
#else
template <class T>
using Native = Simd<T, native_lanes<T>>;
#endif

// A vector or a plain number, in memory.
template <class V>
struct LaneTraits {
  using Real = V;
  static constexpr int lanes = 1;
  static MF_INLINE V load(const Real* p) { return *p; }
  static MF_INLINE void store(V x, Real* p) { *p = x; }
};
template <class T, int L>
struct LaneTraits<Simd<T, L>> {
  using Real = T;
  static constexpr int lanes = L;
  static MF_INLINE Simd<T, L> load(const T* p) { return Simd<T, L>::load(p); }
  static MF_INLINE void store(Simd<T, L> x, T* p) { x.store(p); }
};

// ---- functions that work on a Simd and on a plain number alike -------------------------------------------------

MF_INLINE double select(bool condition, double a, double b) { return condition ? a : b; }
MF_INLINE float select(bool condition, float a, float b) { return condition ? a : b; }
MF_INLINE bool select(bool condition, bool a, bool b) { return condition ? a : b; }
MF_INLINE u64 select(bool condition, u64 a, u64 b) { return condition ? a : b; }

#if MF_CUDA  // NVRTC has CUDA's own functions and no builtins
MF_INLINE double sqrt(double x) { return ::sqrt(x); }
MF_INLINE float sqrt(float x) { return ::sqrtf(x); }
MF_INLINE double fma(double a, double b, double c) { return ::fma(a, b, c); }
MF_INLINE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
#else
MF_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
MF_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
MF_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
MF_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#endif

template <class T>
MF_INLINE T mul_add(T a, T b, T c) {
  if constexpr (has_fma)
    return fma(a, b, c);
  else
    return a * b + c;
}

// c - a b
template <class T>
MF_INLINE T neg_mul_add(T a, T b, T c) {
  if constexpr (has_fma)
    return fma(-a, b, c);
  else
    return c - a * b;
}

// The 64-bit product of the low 32 bits of each operand.
MF_INLINE u64 mul_wide_u32(u64 a, u64 b) { return static_cast<u64>(static_cast<u32>(a)) * static_cast<u32>(b); }

// The bits of a real as unsigned integers, and back.
MF_INLINE u64 as_bits(double x) { return bit_cast<u64>(x); }
MF_INLINE u32 as_bits(float x) { return bit_cast<u32>(x); }
MF_INLINE double from_bits(u64 x) { return bit_cast<double>(x); }
MF_INLINE float from_bits(u32 x) { return bit_cast<float>(x); }

#if !MF_CUDA

template <class T, int L>
MF_INLINE Simd<T, L> select(Simd<typename LaneBits<T>::Signed, L> mask, Simd<T, L> a, Simd<T, L> b) {
  return typename Simd<T, L>::Storage(mask.v ? a.v : b.v);
}

template <class T, int L>
MF_INLINE typename Simd<T, L>::Bits as_bits(Simd<T, L> x) {
  return bit_cast<typename Simd<T, L>::Bits::Storage>(x.v);
}
template <int L>
MF_INLINE Simd<double, L> from_bits(Simd<u64, L> x) {
  return bit_cast<typename Simd<double, L>::Storage>(x.v);
}
template <int L>
MF_INLINE Simd<float, L> from_bits(Simd<u32, L> x) {
  return bit_cast<typename Simd<float, L>::Storage>(x.v);
}

// Whether a vector has instructions of its own: it fills the register, or half of one of AVX-512.
template <class S>
inline constexpr bool in_one_register = sizeof(S) == vector_bytes || (vector_bytes == 64 && sizeof(S) == 32);

template <class T, int L>
MF_INLINE Simd<T, L> sqrt(Simd<T, L> x) {
#if MF_X86
  using S = typename Simd<T, L>::Storage;
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 64) {
    if constexpr (sizeof(T) == 8)
      return S(_mm512_sqrt_pd(__m512d(x.v)));
    else
      return S(_mm512_sqrt_ps(__m512(x.v)));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(S) == 32) {
    if constexpr (sizeof(T) == 8)
      return S(_mm256_sqrt_pd(__m256d(x.v)));
    else
      return S(_mm256_sqrt_ps(__m256(x.v)));
  }
#else
  if constexpr (sizeof(S) == 16) {
    if constexpr (sizeof(T) == 8)
      return S(_mm_sqrt_pd(__m128d(x.v)));
    else
      return S(_mm_sqrt_ps(__m128(x.v)));
  }
#endif
#endif
  for (int i = 0; i < L; ++i) x.set(i, sqrt(x[i]));
  return x;
}

template <class T, int L>
MF_INLINE Simd<T, L> fma(Simd<T, L> a, Simd<T, L> b, Simd<T, L> c) {
#if MF_X86 && defined(__FMA__)
  using S = typename Simd<T, L>::Storage;
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 64) {
    if constexpr (sizeof(T) == 8)
      return S(_mm512_fmadd_pd(__m512d(a.v), __m512d(b.v), __m512d(c.v)));
    else
      return S(_mm512_fmadd_ps(__m512(a.v), __m512(b.v), __m512(c.v)));
  }
#endif
  if constexpr (sizeof(S) == 32) {
    if constexpr (sizeof(T) == 8)
      return S(_mm256_fmadd_pd(__m256d(a.v), __m256d(b.v), __m256d(c.v)));
    else
      return S(_mm256_fmadd_ps(__m256(a.v), __m256(b.v), __m256(c.v)));
  }
#endif
  for (int i = 0; i < L; ++i) c.set(i, fma(a[i], b[i], c[i]));
  return c;
}

// Vectors wider than a register have no instruction of their own: there mul_add is a product and a sum.
template <class T, int L>
MF_INLINE Simd<T, L> mul_add(Simd<T, L> a, Simd<T, L> b, Simd<T, L> c) {
  if constexpr (has_fma && in_one_register<decltype(a.v)>)
    return fma(a, b, c);
  else
    return a * b + c;
}
template <class T, int L>
MF_INLINE Simd<T, L> neg_mul_add(Simd<T, L> a, Simd<T, L> b, Simd<T, L> c) {
#if MF_X86 && defined(__FMA__)
  using S = typename Simd<T, L>::Storage;
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 64) {
    if constexpr (sizeof(T) == 8)
      return S(_mm512_fnmadd_pd(__m512d(a.v), __m512d(b.v), __m512d(c.v)));
    else
      return S(_mm512_fnmadd_ps(__m512(a.v), __m512(b.v), __m512(c.v)));
  }
#endif
  if constexpr (sizeof(S) == 32) {
    if constexpr (sizeof(T) == 8)
      return S(_mm256_fnmadd_pd(__m256d(a.v), __m256d(b.v), __m256d(c.v)));
    else
      return S(_mm256_fnmadd_ps(__m256(a.v), __m256(b.v), __m256(c.v)));
  }
#endif
  if constexpr (has_fma && in_one_register<decltype(a.v)>)
    return fma(-a, b, c);
  else
    return c - a * b;
}

template <int L>
MF_INLINE Simd<u64, L> mul_wide_u32(Simd<u64, L> a, Simd<u64, L> b) {
#if MF_X86
  using S = typename Simd<u64, L>::Storage;
  if constexpr (sizeof(S) == vector_bytes) {
#if defined(__AVX512F__)
    return S(_mm512_mul_epu32(__m512i(a.v), __m512i(b.v)));
#elif defined(__AVX2__)
    return S(_mm256_mul_epu32(__m256i(a.v), __m256i(b.v)));
#else
    return S(_mm_mul_epu32(__m128i(a.v), __m128i(b.v)));
#endif
  }
#endif
  const Simd<u64, L> low(0xffffffffull);
  return (a & low) * (b & low);
}

namespace detail {
template <int Shift, int Xor, class T, int L, std::size_t... I>
MF_INLINE Simd<T, L> shuffle(Simd<T, L> x, std::index_sequence<I...>) {
  return typename Simd<T, L>::Storage(__builtin_shufflevector(x.v, x.v, ((static_cast<int>(I) ^ Xor) + Shift) % L...));
}
}  // namespace detail

// Lane permutes: result[i] = x[i xor Bit] (the seam between two virtual nodes) and x[(i + K) mod L].
template <int Bit, class T, int L>
MF_INLINE Simd<T, L> xor_lanes(Simd<T, L> x) {
  static_assert(Bit > 0 && Bit < L);
  return detail::shuffle<0, Bit>(x, std::make_index_sequence<L>{});
}
template <int K, class T, int L>
MF_INLINE Simd<T, L> rotate_lanes(Simd<T, L> x) {
  static_assert(K > 0 && K < L);
  return detail::shuffle<K, 0>(x, std::make_index_sequence<L>{});
}

// Stores a0 b0 a1 b1 ...: two results a lane, written side by side.
template <class T, int L>
MF_INLINE void interleave_store(Simd<T, L> a, Simd<T, L> b, T* p) {
  const auto half = [&]<std::size_t... I>(std::index_sequence<I...>, auto offset) {
    constexpr int first = decltype(offset)::value;
    return typename Simd<T, L>::Storage(
        __builtin_shufflevector(a.v, b.v, (first + static_cast<int>(I) / 2 + (I % 2 ? L : 0))...));
  };
  Simd<T, L>(half(std::make_index_sequence<L>{}, std::integral_constant<int, 0>{})).store(p);
  Simd<T, L>(half(std::make_index_sequence<L>{}, std::integral_constant<int, L / 2>{})).store(p + L);
}

// The sign bits of all lanes, as the bits of one number: what a mask says.
template <class T, int L>
MF_INLINE int sign_bits(Simd<T, L> x) {
#if MF_X86
  using S = typename Simd<T, L>::Storage;
#if defined(__AVX512DQ__)
  if constexpr (sizeof(S) == 64)
    return sizeof(T) == 8 ? static_cast<int>(_mm512_movepi64_mask(__m512i(x.v)))
                          : static_cast<int>(_mm512_movepi32_mask(__m512i(x.v)));
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(S) == 32)
    return sizeof(T) == 8 ? _mm256_movemask_pd(__m256d(x.v)) : _mm256_movemask_ps(__m256(x.v));
#else
  if constexpr (sizeof(S) == 16) return sizeof(T) == 8 ? _mm_movemask_pd(__m128d(x.v)) : _mm_movemask_ps(__m128(x.v));
#endif
#endif
  int bits = 0;
  for (int i = 0; i < L; ++i) bits |= static_cast<int>(as_bits(x)[i] >> (8 * sizeof(T) - 1)) << i;
  return bits;
}

// The two halves of a vector, and back.
template <int Half, class T, int L>
MF_INLINE Simd<T, L / 2> half_of(Simd<T, L> x) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return
        typename Simd<T, L / 2>::Storage(__builtin_shufflevector(x.v, x.v, (Half * (L / 2) + static_cast<int>(I))...));
  }(std::make_index_sequence<L / 2>{});
}
template <class T, int L>
MF_INLINE Simd<T, 2 * L> join(Simd<T, L> a, Simd<T, L> b) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return typename Simd<T, 2 * L>::Storage(__builtin_shufflevector(a.v, b.v, static_cast<int>(I)...));
  }(std::make_index_sequence<2 * L>{});
}

// Each lane as another real type.
template <class To, class T, int L>
MF_INLINE Simd<To, L> convert(Simd<T, L> x) {
  return typename Simd<To, L>::Storage(__builtin_convertvector(x.v, typename Simd<To, L>::Storage));
}

// Keeps what was loaded in a register. GCC otherwise reads memory again at every use, as an operand of the arithmetic,
// and the loads become what the loop waits for.
template <class T, int L>
MF_INLINE Simd<T, L> in_register(Simd<T, L> x) {
#if MF_X86
  if constexpr (in_one_register<decltype(x.v)>) asm("" : "+v"(x.v));
#endif
  return x;
}

#endif  // !MF_CUDA

MF_INLINE double in_register(double x) { return x; }
MF_INLINE float in_register(float x) { return x; }

template <class To>
MF_INLINE To convert(double x) {
  return static_cast<To>(x);
}
template <class To>
MF_INLINE To convert(float x) {
  return static_cast<To>(x);
}

MF_INLINE double horizontal_sum(double x) { return x; }
MF_INLINE float horizontal_sum(float x) { return x; }

// Sum over lanes as a fixed tree: (x0+x4)+(x2+x6) ..., the same order on every target.
template <class T, int L>
MF_INLINE T horizontal_sum(Simd<T, L> x) {
  for (int half = L / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x.set(i, x[i] + x[i + half]);
  return x[0];
}

}  // namespace mf
