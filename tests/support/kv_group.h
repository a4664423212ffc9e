// Groups of KVStores for tests: threads as ranks in this process, or, where mpirun started the program,
// this process as one rank of its world.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/kvstore.h"

namespace pushpull::testing {

// Whether mpirun started this program.
bool under_mpi();

// Sizes of groups to test: the given ones, or only the world's size under mpirun.
std::vector<int> group_sizes(std::vector<int> sizes);

// Settings that all ranks of one new group share; rank is filled in per rank. `backend`: "gloo",
// "gloo-redis" (over a real redis-server that lives as long as this process), "self", "mpi".
Settings group_settings(const std::string& backend, int size);

// Where Settings::host_label is not empty, run_group() has the ranks on two hosts, unevenly: the host of
// a rank.
int host_of(int rank);

// Runs `body` once per rank, each with a store of its own, and closes the stores. Failures to create are
// reported through GoogleTest.
void run_group(const Settings& settings, const std::function<void(KVStore&)>& body);
void run_group(const std::string& backend, int size, const std::function<void(KVStore&)>& body);

// Runs `body(rank)` on one thread per rank (under mpirun: on this one) and joins.
void run_ranks(int size, const std::function<void(int)>& body);

}  // namespace pushpull::testing
