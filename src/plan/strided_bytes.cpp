#include "plan/strided_bytes.hpp"

#include <algorithm>
#include <functional>
#include <span>

namespace safeshuffle::plan {
namespace {

// A multiple of a stride.
struct Term {
  std::int64_t stride = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// Whether a sum of the terms, which have descending strides, lies in [low, high].
bool can_reach(std::span<const Term> terms, std::int64_t low, std::int64_t high) {
  if (terms.empty()) return low <= 0 && high >= 0;
  const Term& term = terms.front();
  const std::span<const Term> rest = terms.subspan(1);
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const Term& other : rest) {
    least += other.least * other.stride;
    most += other.most * other.stride;
  }
  const std::int64_t first = std::max(term.least, -floor_div(most - low, term.stride));
  const std::int64_t last = std::min(term.most, floor_div(high - least, term.stride));
  for (std::int64_t factor = first; factor <= last; ++factor) {
    if (can_reach(rest, low - factor * term.stride, high - factor * term.stride)) return true;
  }
  return false;
}

void sort_terms(std::vector<Term>& terms) {
  std::ranges::sort(terms, std::ranges::greater(), &Term::stride);
}

// Of `sign` times the indices of each loop.
void append_terms(const StridedBytes& bytes, std::int64_t sign, std::vector<Term>& terms) {
  for (const StridedBytes::Loop& loop : bytes.loops) {
    const std::int64_t end = sign * (static_cast<std::int64_t>(loop.count) - 1);
    terms.push_back({static_cast<std::int64_t>(loop.stride), std::min<std::int64_t>(end, 0),
                     std::max<std::int64_t>(end, 0)});
  }
}

// One term for those of the same stride: interleaved columns would take quadratic time.
void join_terms(std::vector<Term>& terms) {
  sort_terms(terms);
  std::size_t joined = 0;
  for (const Term& term : terms) {
    if (joined != 0 && terms[joined - 1].stride == term.stride) {
      terms[joined - 1].least += term.least;
      terms[joined - 1].most += term.most;
    } else {
      terms[joined++] = term;
    }
  }
  terms.resize(joined);
}

}  // namespace

std::uint64_t bytes_of(const StridedBytes& bytes) {
  std::uint64_t count = bytes.run_bytes;
  for (const StridedBytes::Loop& loop : bytes.loops) count *= loop.count;
  return count;
}

std::uint64_t span_of(const StridedBytes& bytes) {
  std::uint64_t span = bytes.run_bytes;
  for (const StridedBytes::Loop& loop : bytes.loops) span += (loop.count - 1) * loop.stride;
  return span;
}

void merge_loops(StridedBytes& bytes) {
  std::vector<StridedBytes::Loop> merged;  // innermost first
  for (auto loop = bytes.loops.rbegin(); loop != bytes.loops.rend(); ++loop) {
    if (merged.empty() && loop->stride == bytes.run_bytes) {
      bytes.run_bytes *= loop->count;
    } else if (!merged.empty() && loop->stride == merged.back().stride * merged.back().count) {
      merged.back().count *= loop->count;
    } else {
      merged.push_back(*loop);
    }
  }
  bytes.loops.assign(merged.rbegin(), merged.rend());
}

// If so, some indices differ: of two such sets of indices, the differences add up to less than a
// run. Of these, the first that is not 0 can be taken to be positive.
bool overlaps_itself(const StridedBytes& bytes) {
  std::vector<Term> terms;
  append_terms(bytes, 1, terms);
  sort_terms(terms);
  for (Term& term : terms) term.least = -term.most;
  const std::int64_t reach_of_run = static_cast<std::int64_t>(bytes.run_bytes) - 1;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    terms[i].least = 1;
    if (can_reach(std::span(terms).subspan(i), -reach_of_run, reach_of_run)) return true;
  }
  return false;
}

bool overlap(const StridedBytes& a, const StridedBytes& b) {
  std::vector<Term> terms;
  append_terms(a, 1, terms);
  append_terms(b, -1, terms);
  join_terms(terms);
  const std::int64_t distance = static_cast<std::int64_t>(b.begin - a.begin);
  return can_reach(terms, distance - static_cast<std::int64_t>(a.run_bytes) + 1,
                   distance + static_cast<std::int64_t>(b.run_bytes) - 1);
}

}  // namespace safeshuffle::plan
