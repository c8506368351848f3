// How a periodic lattice lies in memory on a CPU: virtual nodes.
//
// Up to four directions are cut in two, so that the lattice becomes `lanes` equal pieces ("virtual nodes"); the sites
// at the same place of every piece share a vector, one a lane. A neighbour inside the piece is the next vector with
// lanes as they are; across its edge it is the vector at the other side with the lanes of that direction exchanged,
// which is lane i xor a bit. Exchanges commute, so a position is (vector, mask).
//
// All lanes of a vector have the same parity, which even-odd updates need. A direction whose extent is a multiple of
// four has pieces of even extent: a lane is a shift by half of it, which keeps the parity. Half of an extent 4 k + 2 is
// odd; two such shifts together keep the parity. So the first direction of that kind stays whole, and each other one is
// cut with a twist: its lane is a shift by half of it and by half of the whole one, and where a step crosses its edge
// it moves along the whole one, too. Of the sixteen combinations of halves at least eight keep the parity.
#pragma once

#include <array>
#include <vector>

#include "fields.hpp"

namespace mf {

class Layout {
 public:
  static constexpr int certain_lanes = 8;

  // dims are (Nx, Ny, Nz, Nt), even and >= 2; `wanted_lanes` is what the register holds. There are so many lanes, or
  // `certain_lanes` where the lattice has no more.
  Layout(std::array<int, 4> dims, int wanted_lanes) : dims_(dims), pieces_{1, 1, 1, 1}, whole_(-1), lanes_(1) {
    for (const bool twisted : {false, true})
      for (int mu = 0; mu < 4 && lanes_ < wanted_lanes; ++mu) {
        if ((dims[mu] % 4 != 0) != twisted) continue;
        if (twisted && whole_ < 0) {
          whole_ = mu;
        } else {
          pieces_[mu] = 2;
          lanes_ *= 2;
        }
      }
    i64 count = 1;
    int bit = 1;
    for (int mu = 0; mu < 4; ++mu) {
      local_[mu] = dims[mu] / pieces_[mu];
      bit_[mu] = pieces_[mu] == 2 ? bit : 0;
      if (pieces_[mu] == 2) bit *= 2;
      count *= local_[mu];
    }
    vectors_ = count;
    neighbours_.resize(static_cast<std::size_t>(8 * count));
    site_of_lane_.resize(static_cast<std::size_t>(count * lanes_));
    for (i64 v = 0; v < count; ++v) {
      const std::array<int, 4> x = local_coordinates(v);
      by_parity_[(x[0] + x[1] + x[2] + x[3]) % 2].push_back(static_cast<i32>(v));
      for (int mu = 0; mu < 4; ++mu) {
        neighbours_[static_cast<std::size_t>(8 * v + mu)] = step(x, mu, +1);
        neighbours_[static_cast<std::size_t>(8 * v + 4 + mu)] = step(x, mu, -1);
      }
      for (int lane = 0; lane < lanes_; ++lane)
        site_of_lane_[static_cast<std::size_t>(v * lanes_ + lane)] = lexicographic(x, lane);
    }
  }

  int lanes() const { return lanes_; }
  i64 vectors() const { return vectors_; }
  const std::array<int, 4>& dims() const { return dims_; }
  const std::array<int, 4>& local() const { return local_; }
  int bit(int mu) const { return bit_[mu]; }
  i64 sites() const { return vectors_ * lanes_; }
  const std::vector<i32>& parity(int p) const { return by_parity_[p]; }
  Neighbour forward(i64 v, int mu) const { return neighbours_[static_cast<std::size_t>(8 * v + mu)]; }
  Neighbour backward(i64 v, int mu) const { return neighbours_[static_cast<std::size_t>(8 * v + 4 + mu)]; }
  // Where a vector of sites is, for kernels to step on from.
  Position at(i64 v) const { return {neighbours_.data(), v, 0}; }
  // The number of a site in file order (x fastest), the address of its random numbers.
  const u32* sites_of(i64 v) const { return site_of_lane_.data() + v * lanes_; }
  i64 vector_at(const std::array<int, 4>& x) const {
    return ((static_cast<i64>(x[3]) * local_[2] + x[2]) * local_[1] + x[1]) * local_[0] + x[0];
  }

 private:
  std::array<int, 4> local_coordinates(i64 v) const {
    std::array<int, 4> x;
    for (int mu = 0; mu < 4; ++mu) {
      x[mu] = static_cast<int>(v % local_[mu]);
      v /= local_[mu];
    }
    return x;
  }
  Neighbour step(std::array<int, 4> x, int mu, int direction) const {
    const int moved = x[mu] + direction;
    const bool crossed = moved < 0 || moved >= local_[mu];
    x[mu] = (moved + local_[mu]) % local_[mu];
    if (crossed && twisted(mu)) move_along_whole(x);
    return {static_cast<i32>(vector_at(x)), crossed ? bit_[mu] : 0};
  }
  bool twisted(int mu) const { return pieces_[mu] == 2 && local_[mu] % 2 != 0; }
  void move_along_whole(std::array<int, 4>& x) const {
    int& along = x[static_cast<std::size_t>(whole_)];
    along = (along + dims_[static_cast<std::size_t>(whole_)] / 2) % dims_[static_cast<std::size_t>(whole_)];
  }
  u32 lexicographic(std::array<int, 4> x, int lane) const {
    for (int mu = 0; mu < 4; ++mu) {
      if (!(lane & bit_[mu])) continue;
      x[mu] += local_[mu];
      if (twisted(mu)) move_along_whole(x);
    }
    i64 index = 0;
    for (int mu = 3; mu >= 0; --mu) index = index * dims_[mu] + x[mu];
    return static_cast<u32>(index);
  }

  std::array<int, 4> dims_, pieces_, local_, bit_;
  int whole_, lanes_;
  i64 vectors_;
  std::vector<Neighbour> neighbours_;
  std::vector<i32> by_parity_[2];
  std::vector<u32> site_of_lane_;
};

}  // namespace mf
