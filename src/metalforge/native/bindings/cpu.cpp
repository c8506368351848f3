// Which build levels this CPU can run. Compiled for the plain architecture, so that it can be asked anywhere.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

namespace nb = nanobind;

namespace {

// The levels of the x86-64 psABI, lowest first; AVX2 without the rest of v3 does not occur in practice but is checked.
std::vector<std::string> supported_levels() {
  std::vector<std::string> levels;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("ssse3")) {
    levels.push_back("v2");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("bmi")) {
      levels.push_back("v3");
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl"))
        levels.push_back("v4");
    }
  }
#else
  levels.push_back("portable");
#endif
  return levels;
}

}  // namespace

NB_MODULE(_cpu, m) { m.def("supported_levels", &supported_levels); }
