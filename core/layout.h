// Which ranks of a group share memory, and so which of them carry what between hosts.
//
// "Host" here is a set of ranks that have proven to share memory: a machine or part of it. Of every
// host the first k ranks are carriers, where k is the size of the smallest host: carrier c of a
// host exchanges its share of a tensor with the carriers c of the others.
#pragma once

#include <span>
#include <vector>

namespace pushpull {

class Layout {
 public:
  // Nobody.
  Layout() = default;
  // hosts[r]: any number that is equal for ranks that share memory. Hosts are counted by their
  // lowest rank.
  explicit Layout(std::span<const int> hosts);
  // Every rank is a host of its own.
  static Layout apart(int ranks);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_of_.size()); }
  int carriers() const { return carriers_; }  // of each host
  // Into how many slices a tensor is cut for a sum: one for each carrier of each host.
  int slices() const { return hosts() * carriers(); }

  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  int local_rank(int rank) const { return local_rank_[static_cast<size_t>(rank)]; }
  // By local rank.
  const std::vector<int>& ranks_of(int host) const { return ranks_of_[static_cast<size_t>(host)]; }
  bool carries(int rank) const { return local_rank(rank) < carriers_; }
  // The ranks with this local rank, by host.
  std::vector<int> counterparts(int local_rank) const;

 private:
  std::vector<int> host_of_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> ranks_of_;
  int carriers_ = 0;
};

}  // namespace pushpull
