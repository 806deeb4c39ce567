// The rendezvous in a directory that all ranks share.
//
// Rank 0 writes PATH with the random name of this meeting. Each other rank answers with a file of
// its own, PATH.rank-K-RANDOM, that repeats that name: so nothing that an earlier job has left can
// be taken for part of this meeting. Rank 0 writes PATH anew with the answer and the random names
// of those it is for; a rank that finds its own there takes the answer and removes its file, by
// which rank 0 sees that it has it. All files appear by renaming, whole, and are private to the
// user.
#pragma once

#include <functional>
#include <string>

#include "comm/rendezvous.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// See `rendezvous`. Leaves no file behind, nor those of jobs that crashed.
std::string meet_by_file(const Meeting& meeting, const std::string& path,
                         const std::function<std::string()>& step, const core::Deadline& deadline);

}  // namespace safeshuffle::comm
