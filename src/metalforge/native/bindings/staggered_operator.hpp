// The staggered operator as a Python object: its links, its neighbours, and how drivers walk over them.
#pragma once

#include "lattice.hpp"
#include "staggered.hpp"
#include "team.hpp"

namespace mf::bindings {

// W of both parities with the tables to hop by; made once a lattice, filled by `refresh` whenever the links change.
template <class Real>
struct StaggeredOperator {
  FieldLayout<Real> layout;
  i64 vectors;  // of one parity
  AlignedArray<Real> links[2];
  std::vector<Neighbour> around[2];

  explicit StaggeredOperator(const std::array<int, 4>& dims) : layout(dims), vectors(layout.vectors() / 2) {
    for (int parity = 0; parity < 2; ++parity) {
      links[parity] = AlignedArray<Real>(vectors * 4 * 18 * layout.lanes());
      // Entries past the end are read, as prefetch addresses, and never followed.
      around[parity].resize(static_cast<std::size_t>(8 * (vectors + prefetch_distance)));
      for (i64 i = 0; i < vectors; ++i) {
        const i64 v = layout.parity(parity)[static_cast<std::size_t>(i)];
        for (int mu = 0; mu < 4; ++mu) {
          around[parity][static_cast<std::size_t>(8 * i + mu)] = halved(layout.forward(v, mu));
          around[parity][static_cast<std::size_t>(8 * i + 4 + mu)] = halved(layout.backward(v, mu));
        }
      }
    }
  }

  Shape colours() const { return {vectors, 6, layout.lanes()}; }
  i64 colour_numbers() const { return vectors * 6 * layout.lanes(); }

  template <class V>
  HoppingLinks<V> links_of(int parity) const {
    return {links[parity].data(), vectors};
  }
  const Neighbour* around_of(int parity, i64 i) const { return around[parity].data() + 8 * i; }

 private:
  // The extent of a piece in x is even (x is never cut with a twist), so vectors 2 i and 2 i + 1 are the i-th of either
  // parity.
  static Neighbour halved(Neighbour n) { return {n.vector / 2, n.mask}; }
};

// H onto vectors of one parity: call with the field on the other one.
template <bool Prefetch, class V>
struct Hopping {
  HoppingLinks<V> here, there;
  const Neighbour* around;

  template <class Real>
  Hopping(const StaggeredOperator<Real>& op, int parity)
      : here(op.template links_of<V>(parity)),
        there(op.template links_of<V>(1 - parity)),
        around(op.around_of(parity, 0)) {}

  MF_INLINE ColourVector<V> operator()(const Colours<V>& psi, i64 i) const {
    return hop<Prefetch>(here, there, psi, around + 8 * i, i);
  }
};

// Vectors a thread must have to be woken for one pass of H or of vector operations, a tenth of a microsecond each, and
// to stay in a team that meets at a barrier after every pass.
inline constexpr i64 share_of_pass = 512, share_of_team = 64;

// Calls work(V{}, std::bool_constant): the lane type of the operator, and whether its links are far away. What fits a
// core's own cache (a megabyte or two) is there already.
template <class Real, class Work>
void with_hopping(const StaggeredOperator<Real>& op, int threads, Work work) {
  const i64 bytes_of_thread = op.vectors * 2 * 4 * 18 * op.layout.lanes() * static_cast<i64>(sizeof(Real)) / threads;
  with_lanes(op.layout, [&](auto tag) {
    if (bytes_of_thread > (i64{2} << 20))
      work(tag, std::true_type{});
    else
      work(tag, std::false_type{});
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
