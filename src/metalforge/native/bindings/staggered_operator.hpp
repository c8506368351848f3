// The staggered operator as a Python object: its links, its neighbours, and how drivers walk over them.
#pragma once

#include <algorithm>

#include "lattice.hpp"
#include "staggered.hpp"
#include "team.hpp"

namespace mf::bindings {

// The sign of a hop from a site, and its half.
template <class Real>
Real hopping_sign_of(const FieldLayout<Real>& layout, i64 v, int mu, int lane) {
  const auto& n = layout.dims();
  return static_cast<Real>(hopping_sign(layout.sites_of(v)[lane], {n[0], n[1], n[2], n[3]}, mu));
}

// Links of this size are taken to be in a core's own cache, and in that of all cores.
inline constexpr i64 near_bytes = i64{2} << 20, cached_bytes = i64{24} << 20;

// W of both parities with the tables to hop by; made once a lattice, filled by `refresh` whenever the links change.
template <class Real>
struct StaggeredOperator {
  FieldLayout<Real> layout;
  i64 vectors;  // of one parity
  int rows;     // of a link: two where they come from memory
  AlignedArray<Real> links[2];
  std::vector<Neighbour> around[2];
  std::vector<unsigned char> pattern_of[2];  // of the signs of hops: 4 for each vector, by direction
  std::vector<Real> patterns;                // +-2 in every lane

  explicit StaggeredOperator(const std::array<int, 4>& dims) : layout(dims), vectors(layout.vectors() / 2) {
    rows = link_bytes() > cached_bytes ? 2 : 3;
    for (int parity = 0; parity < 2; ++parity) {
      links[parity] = AlignedArray<Real>(vectors * 4 * 6 * rows * layout.lanes());
      pattern_of[parity].resize(static_cast<std::size_t>(4 * vectors));
      // Entries past the end are read, as prefetch addresses, and never followed.
      around[parity].resize(static_cast<std::size_t>(8 * (vectors + prefetch_distance)));
      for (i64 i = 0; i < vectors; ++i) {
        const i64 v = layout.parity(parity)[static_cast<std::size_t>(i)];
        for (int mu = 0; mu < 4; ++mu) {
          pattern_of[parity][static_cast<std::size_t>(mu * vectors + i)] = pattern(v, mu);
          around[parity][static_cast<std::size_t>(8 * i + mu)] = halved(layout.forward(v, mu));
          around[parity][static_cast<std::size_t>(8 * i + 4 + mu)] = halved(layout.backward(v, mu));
        }
      }
    }
  }

  // Of the gauge field.
  i64 link_bytes() const { return layout.sites() * 4 * 18 * static_cast<i64>(sizeof(Real)); }
  Shape colours() const { return {vectors, 6, layout.lanes()}; }
  i64 colour_numbers() const { return vectors * 6 * layout.lanes(); }

  template <class V, int Rows>
  HoppingLinks<V, Rows> links_of(int parity) const {
    return {links[parity].data(), vectors, pattern_of[parity].data(), patterns.data()};
  }
  const Neighbour* around_of(int parity, i64 i) const { return around[parity].data() + 8 * i; }

 private:
  // The number of the pattern of signs of a vector's hops along mu; there are few.
  unsigned char pattern(i64 v, int mu) {
    const int lanes = layout.lanes(), n = static_cast<int>(patterns.size()) / lanes;
    std::vector<Real> signs;
    for (int lane = 0; lane < lanes; ++lane) signs.push_back(4 * hopping_sign_of(layout, v, mu, lane));
    for (int k = 0; k < n; ++k)
      if (std::equal(signs.begin(), signs.end(), patterns.begin() + k * lanes)) return static_cast<unsigned char>(k);
    patterns.insert(patterns.end(), signs.begin(), signs.end());
    return static_cast<unsigned char>(n);
  }
  // The extent of a piece in x is even (x is never cut with a twist), so vectors 2 i and 2 i + 1 are the i-th of either
  // parity.
  static Neighbour halved(Neighbour n) { return {n.vector / 2, n.mask}; }
};

// Where the operator's links are: the rows of each, and whether they are fetched ahead of their use.
template <int Rows, bool Prefetch>
struct Reach {
  static constexpr int rows = Rows;
  static constexpr bool prefetch = Prefetch;
};

// H onto vectors of one parity: call with the field on the other one.
template <class Reach, class V>
struct Hopping {
  HoppingLinks<V, Reach::rows> here, there;
  const Neighbour* around;

  template <class Real>
  Hopping(const StaggeredOperator<Real>& op, int parity)
      : here(op.template links_of<V, Reach::rows>(parity)),
        there(op.template links_of<V, Reach::rows>(1 - parity)),
        around(op.around_of(parity, 0)) {}

  MF_INLINE ColourVector<V> operator()(const Colours<V>& psi, i64 i) const {
    return hop<Reach::prefetch>(here, there, psi, around + 8 * i, i);
  }
};

// Vectors a thread must have to be woken for one pass of H or of vector operations, a tenth of a microsecond each, and
// to stay in a team that meets at a barrier after every pass.
inline constexpr i64 share_of_pass = 512, share_of_team = 64;

// Calls work(V{}, Reach{}): the lane type of the operator, and where its links are for so many threads.
template <class Real, class Work>
void with_hopping(const StaggeredOperator<Real>& op, int threads, Work work) {
  with_lanes(op.layout, [&](auto tag) {
    if (op.rows == 2)
      work(tag, Reach<2, true>{});
    else if (op.link_bytes() / threads > near_bytes)
      work(tag, Reach<3, true>{});
    else
      work(tag, Reach<3, false>{});
    return 0;
  });
}

inline int parity_argument(nb::handle object) { return static_cast<int>(unsigned_argument(object, "parity", 1)); }

// Fields of a Python sequence, all of one shape.
template <class Buffer>
class Buffers {
 public:
  Buffers(nb::handle sequence_object, const char* argument, const Shape& wanted, std::size_t most) {
    const std::string wants =
        std::string("`") + argument + "` must be a sequence of 1 to " + std::to_string(most) + " arrays";
    const nb::object sequence = nb::steal(PySequence_Fast(sequence_object.ptr(), wants.c_str()));
    if (!sequence.is_valid()) throw nb::python_error();
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence.ptr());
    if (n < 1 || static_cast<std::size_t>(n) > most) throw nb::value_error(wants.c_str());
    for (Py_ssize_t i = 0; i < n; ++i)
      items_.push_back(std::make_unique<Buffer>(PySequence_Fast_GET_ITEM(sequence.ptr(), i), argument, wanted));
  }
  std::size_t size() const { return items_.size(); }
  auto* operator[](std::size_t i) const { return items_[i]->data(); }

 private:
  std::vector<std::unique_ptr<Buffer>> items_;
};

}  // namespace mf::bindings
