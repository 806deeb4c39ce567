#include "plan/assignment.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/arithmetic.hpp"
#include "plan/cut.hpp"

namespace safeshuffle::plan {
namespace {

using RankUnits = std::vector<std::vector<ReadUnit>>;

// Where a chunk starts decides where its data starts in the arenas. These granules keep that
// aligned for all usual shapes, also when elements halve in size on the way.
constexpr std::uint64_t chunk_byte_granule = 2 * arena_alignment;
constexpr std::uint64_t chunk_row_granule = arena_alignment;

std::uint64_t rows_per_chunk(std::uint64_t rows_that_fit) {
  return rows_that_fit >= chunk_row_granule ? core::align_down(rows_that_fit, chunk_row_granule)
                                            : std::bit_floor(rows_that_fit);
}

void append_chunks(std::uint32_t tensor, std::uint64_t begin, std::uint64_t end,
                   std::uint64_t chunk, std::vector<ReadUnit>& units) {
  for (std::uint64_t at = begin; at < end; at += chunk) {
    units.push_back({tensor, at, std::min(end, at + chunk)});
  }
}

void append_units(std::uint32_t tensor, const Cut& cut, std::uint64_t window,
                  std::vector<ReadUnit>& units) {
  const std::uint64_t bytes = cut.rows * cut.row_bytes;
  if (bytes <= window) {
    units.push_back({tensor, 0, bytes});
  } else if (cut.row_bytes <= window) {
    append_chunks(tensor, 0, bytes, rows_per_chunk(window / cut.row_bytes) * cut.row_bytes, units);
  } else {
    const std::uint64_t chunk = core::align_down(window, chunk_byte_granule);
    for (std::uint64_t row = 0; row < cut.rows; ++row) {
      append_chunks(tensor, row * cut.row_bytes, (row + 1) * cut.row_bytes, chunk, units);
    }
  }
}

std::uint32_t file_of(const ReadUnit& unit, const Catalog& catalog) {
  return catalog.tensors()[unit.tensor].file;
}

std::vector<std::uint64_t> bytes_per_file(const Catalog& catalog,
                                          const std::vector<ReadUnit>& units) {
  std::vector<std::uint64_t> bytes(catalog.files().size());
  for (const ReadUnit& unit : units) bytes[file_of(unit, catalog)] += unit.bytes();
  return bytes;
}

RankUnits assign_files(const std::vector<std::uint32_t>& rank_of_file, const Catalog& catalog,
                       const std::vector<ReadUnit>& units, std::uint32_t world) {
  RankUnits ranks(world);
  for (const ReadUnit& unit : units) ranks[rank_of_file[file_of(unit, catalog)]].push_back(unit);
  return ranks;
}

std::vector<std::uint32_t> round_robin_files(std::size_t files, std::uint32_t world) {
  std::vector<std::uint32_t> rank_of_file(files);
  for (std::size_t i = 0; i < files; ++i) rank_of_file[i] = static_cast<std::uint32_t>(i % world);
  return rank_of_file;
}

// Longest processing time first: within 4/3 of the best balance that whole files allow (Graham
// 1969).
std::vector<std::uint32_t> balanced_files(const std::vector<std::uint64_t>& file_bytes,
                                          std::uint32_t world) {
  std::vector<std::uint32_t> order(file_bytes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return file_bytes[a] > file_bytes[b]; });
  std::vector<std::uint64_t> load(world);
  std::vector<std::uint32_t> rank_of_file(file_bytes.size());
  for (const std::uint32_t file : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += file_bytes[file];
    rank_of_file[file] = static_cast<std::uint32_t>(least - load.begin());
  }
  return rank_of_file;
}

// A unit goes to the rank whose 1/world of the file's bytes contains the unit's midpoint.
RankUnits striped_units(const Catalog& catalog, const std::vector<ReadUnit>& units,
                        std::uint32_t world) {
  const std::vector<std::uint64_t> file_bytes = bytes_per_file(catalog, units);
  std::vector<std::uint64_t> passed(file_bytes.size());
  RankUnits ranks(world);
  for (const ReadUnit& unit : units) {
    const std::uint32_t file = file_of(unit, catalog);
    const std::uint64_t twice_middle = 2 * passed[file] + unit.bytes();
    const auto stripe = static_cast<std::uint32_t>(twice_middle * world / (2 * file_bytes[file]));
    // Rotated by file, so that where tensors do not divide evenly not always the same rank has
    // more.
    ranks[(stripe + file) % world].push_back(unit);
    passed[file] += unit.bytes();
  }
  return ranks;
}

bool badly_skewed(const std::vector<std::uint64_t>& file_bytes, std::uint32_t world) {
  std::vector<std::uint64_t> load(world);
  for (std::size_t i = 0; i < file_bytes.size(); ++i) load[i % world] += file_bytes[i];
  const std::uint64_t total = std::accumulate(load.begin(), load.end(), std::uint64_t{0});
  const std::uint64_t slowest = *std::max_element(load.begin(), load.end());
  return slowest > total / world + total / world / 4;
}

}  // namespace

std::vector<ReadUnit> read_units(const Schedule& schedule, std::uint64_t window) {
  std::vector<ReadUnit> units;
  units.reserve(schedule.placements.size());
  for (std::uint32_t i = 0; i < schedule.placements.size(); ++i) {
    if (schedule.placements[i].kind == Placement::Kind::dropped) continue;
    if (schedule.catalog.tensors()[i].bytes == 0) continue;
    append_units(i, schedule.cuts[i], window, units);
  }
  return units;
}

Assignment resolve(Assignment assignment, const Catalog& catalog,
                   const std::vector<ReadUnit>& units, std::uint32_t world) {
  if (assignment != Assignment::automatic) return assignment;
  const std::vector<std::uint64_t> file_bytes = bytes_per_file(catalog, units);
  return file_bytes.size() < world || badly_skewed(file_bytes, world) ? Assignment::striped
                                                                      : Assignment::round_robin;
}

std::vector<std::vector<ReadUnit>> assign(Assignment assignment, const Catalog& catalog,
                                          const std::vector<ReadUnit>& units, std::uint32_t world) {
  if (assignment == Assignment::striped) return striped_units(catalog, units, world);
  const std::vector<std::uint32_t> rank_of_file =
      assignment == Assignment::balanced ? balanced_files(bytes_per_file(catalog, units), world)
                                         : round_robin_files(catalog.files().size(), world);
  return assign_files(rank_of_file, catalog, units, world);
}

}  // namespace safeshuffle::plan
