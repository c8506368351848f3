// N vectors that behave like one: what is done to one is done to all of them before the next step, so that they do not
// wait for each other's results. For long chains of dependent operations (random numbers, series), which alone leave
// most of a CPU idle. CPU only.
#pragma once

#include "simd.hpp"

namespace mf {

template <class T, int N>
struct Pack {
  T of[N];

  Pack() = default;
  template <class Scalar>
    requires(std::is_arithmetic_v<Scalar>)
  MF_INLINE Pack(Scalar x) {
    MF_UNROLL
    for (int i = 0; i < N; ++i) of[i] = T(x);
  }

  static MF_INLINE Pack load(const T* p) {
    return each([&](int i) { return p[i]; });
  }
  MF_INLINE void store(T* p) const {
    MF_UNROLL
    for (int i = 0; i < N; ++i) p[i] = of[i];
  }
  // f(i) for each i.
  template <class F>
  static MF_INLINE auto each(F f) {
    Pack<decltype(f(0)), N> r;
    MF_UNROLL
    for (int i = 0; i < N; ++i) r.of[i] = f(i);
    return r;
  }
  friend MF_INLINE Pack operator+(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] + b.of[i]; });
  }
  friend MF_INLINE Pack operator-(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] - b.of[i]; });
  }
  friend MF_INLINE Pack operator*(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] * b.of[i]; });
  }
  friend MF_INLINE Pack operator/(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] / b.of[i]; });
  }
  friend MF_INLINE Pack operator&(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] & b.of[i]; });
  }
  friend MF_INLINE Pack operator|(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] | b.of[i]; });
  }
  friend MF_INLINE Pack operator^(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] ^ b.of[i]; });
  }
  friend MF_INLINE Pack operator<<(const Pack& a, int s) {
    return each([&](int i) { return a.of[i] << s; });
  }
  friend MF_INLINE Pack operator>>(const Pack& a, int s) {
    return each([&](int i) { return a.of[i] >> s; });
  }
  friend MF_INLINE auto operator==(const Pack& a, const Pack& b) {
    return each([&](int i) { return a.of[i] == b.of[i]; });
  }
};

template <class M, class T, int N>
MF_INLINE Pack<T, N> select(const Pack<M, N>& mask, const Pack<T, N>& a, const Pack<T, N>& b) {
  return Pack<T, N>::each([&](int i) { return select(mask.of[i], a.of[i], b.of[i]); });
}
template <class T, int N>
MF_INLINE auto as_bits(const Pack<T, N>& x) {
  return x.each([&](int i) { return as_bits(x.of[i]); });
}
template <class T, int N>
MF_INLINE auto from_bits(const Pack<T, N>& x) {
  return x.each([&](int i) { return from_bits(x.of[i]); });
}
}  // namespace mf
