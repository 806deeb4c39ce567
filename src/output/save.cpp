// Saving each rank's tensors as a safetensors file of its own.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/sharded_output.hpp"

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/new_files.hpp"
#include "core/page.hpp"
#include "core/random.hpp"
#include "core/system_call.hpp"
#include "core/wire.hpp"
#include "format/sharded_state.hpp"
#include "output/file_writer.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/tensor_state.hpp"
#include "placement/join_shards.hpp"

namespace safeshuffle {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t save_chunk = std::uint64_t{16} << 20;

// Widest elements first, then by name, as the reference library writes them, so that all data is
// aligned to its element size.
std::vector<const TensorView*> widest_first(const TensorSet& model) {
  std::vector<const TensorView*> views;
  for (const TensorView& view : model) views.push_back(&view);
  std::stable_sort(views.begin(), views.end(), [](const TensorView* a, const TensorView* b) {
    return bits(a->dtype) > bits(b->dtype);
  });
  return views;
}

// What a view is of its whole tensor; none if it is that.
std::optional<SavedShard> shard_of(const TensorView& view, const Plan& plan, std::uint32_t rank) {
  const Target& target = plan.targets()[view.index];
  if (target.saved_shard) return *target.saved_shard;
  return placement::shard_of(target, plan.catalog(), rank, plan.replica_size());
}

// Whether it is known of all targets, on whichever rank, what they are: either all ranks write a
// record, or none does.
bool knows_all_shards(const Plan& plan) {
  return std::ranges::none_of(plan.targets(), [](const Target& target) {
    return target.saved_shard && target.saved_shard->shape.empty();
  });
}

std::map<std::string, std::string> metadata(const std::vector<const TensorView*>& views,
                                            const TensorSet& model) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (!knows_all_shards(model.plan())) return metadata;
  std::map<std::string, SavedShard> shards;
  for (const TensorView* view : views) {
    std::optional<SavedShard> shard = shard_of(*view, model.plan(), model.rank());
    if (shard) shards.emplace(view->name, *std::move(shard));
  }
  metadata.emplace(format::shard_record_key,
                   format::write_shard_record(model.rank(), model.plan().replica_size(), shards));
  return metadata;
}

// Data begins at a page, so that it can be read in place: see plan::InPlaceRule.
format::HeaderLayout layout(const std::vector<const TensorView*>& views, const TensorSet& model) {
  std::vector<format::TensorSpec> specs;
  for (const TensorView* view : views) {
    specs.push_back(
        {std::string(view->name), view->dtype, {view->shape.begin(), view->shape.end()}});
  }
  return format::layout_header(specs, metadata(views, model), core::page_bytes);
}

void write_tensor(output::FileWriter& writer, std::size_t index, const TensorSet& model,
                  TensorView view, std::vector<std::byte>& buffer, const comm::Heartbeat& beat) {
  const std::uint64_t total = view.bytes;
  for (std::uint64_t done = 0; done < total; done += view.bytes, view.data += view.bytes) {
    view.bytes = std::min(save_chunk, total - done);
    buffer.resize(view.bytes);
    model.copy_to_host(view, buffer);
    writer.write(index, done, buffer);
    beat();
  }
}

std::unique_ptr<output::FileWriter> write_file(const TensorSet& model, const fs::path& path,
                                               const comm::Heartbeat& beat) {
  const auto views = widest_first(model);
  format::HeaderLayout header;
  comm::beat_during(beat, [&] { header = layout(views, model); });
  auto writer = std::make_unique<output::FileWriter>(path, std::move(header));
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < views.size(); ++i) {
    write_tensor(*writer, i, model, *views[i], buffer, beat);
  }
  writer->flush();
  return writer;
}

[[noreturn]] void refuse(const fs::path& path, std::string cause) {
  throw ConfigError(ErrorRecord{.file = path.string(), .cause = std::move(cause)});
}

// The rank that writes the file of this name in a sufficiently large group.
std::optional<std::uint32_t> shard_rank(std::string_view name) {
  const auto file = format::parse_shard_name(name);
  return file && file->part == 0 ? std::optional(file->rank) : std::nullopt;
}

bool is_same_directory(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

// Shards next to the files they come from would be loaded as part of the checkpoint, or replace it.
void check_apart_from_source(const fs::path& directory, const Catalog& catalog) {
  for (const FileInfo& file : catalog.files()) {
    std::error_code ignored;
    if (is_same_directory(core::directory_of(file.path), directory) ||
        is_same_directory(core::directory_of(fs::weakly_canonical(file.path, ignored)),
                          directory)) {
      refuse(directory, "the checkpoint itself lies in this directory; save elsewhere");
    }
  }
}

// Rejects what belongs to another checkpoint, which would be one with the shards, or be hidden by
// them.
void check_entry(const fs::path& path, std::uint32_t world) {
  const std::string name = path.filename().string();
  const std::optional<std::uint32_t> rank = shard_rank(name);
  if (rank && *rank < world) return;
  if (rank) {
    refuse(path, "was saved by a larger group; remove that group's files or save elsewhere");
  }
  const bool part = name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  if (!part || name.starts_with('.')) return;
  refuse(path, "belongs to another checkpoint; remove it or save elsewhere");
}

void check_entries(const fs::path& directory, std::uint32_t world) try {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    check_entry(entry.path(), world);
  }
} catch (const fs::filesystem_error& error) {
  core::raise_errno(error.code().value(), directory.string(), "cannot list the directory");
}

// If it cannot be determined, writing will fail later if necessary.
std::uint64_t free_bytes(const fs::path& directory) {
  std::error_code error;
  return fs::space(directory, error).available;  // the largest number if there is an error
}

// What a rank that can write tells the others.
struct Prepared {
  std::uint32_t holder = 0;  // rank that holds the lock; the same for ranks that share a directory
  std::uint64_t free = 0;
};

auto fields(core::As<Prepared> auto& prepared) {
  return std::tie(prepared.holder, prepared.free);
}

// All ranks know all numbers, so either all throw or none does.
void check_space(const fs::path& directory, const Plan& plan, const std::vector<Prepared>& ranks) {
  std::vector<std::uint64_t> needed(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    needed[ranks[rank].holder] += plan.ranks()[rank].kept_bytes;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (needed[rank] <= ranks[rank].free) continue;
    throw IoError(ErrorRecord{.code = ENOSPC,
                              .rank = static_cast<std::int32_t>(rank),
                              .file = directory.string(),
                              .cause = "the tensors to be saved take " +
                                       std::to_string(needed[rank]) + " bytes, but only " +
                                       std::to_string(ranks[rank].free) + " are free"});
  }
}

}  // namespace

class ShardedOutput::State {
 public:
  State(fs::path directory, const Plan& plan, Communicator comm, const Options& options)
      : directory_(std::move(directory)),
        plan_(plan),
        comm_(std::move(comm)),
        options_(options),
        path_(file_of(directory_, comm_.rank())) {
    const comm::CollectiveCall call(comm_, options_.cancel);
    lock_together(begin());
    check_room();
  }

  void write(const TensorSet& model) {
    const comm::CollectiveCall call(comm_, options_.cancel);
    std::unique_ptr<output::FileWriter> writer;
    comm::agree_with_heartbeat(comm_.control(), timeout(),
                               [&](const comm::Heartbeat& beat) -> std::string {
                                 check_model(model);
                                 if (saves()) writer = write_file(model, path_, beat);
                                 return {};
                               });
    // Only renames are left; if one fails nevertheless, all ranks undo theirs.
    agree_on([&]() -> std::string {
      if (writer) writer->publish();
      return {};
    });
    if (writer) writer->commit();
    written_ = true;
  }

 private:
  // The ranks of the first replica do; the others have the same tensors.
  bool saves() const noexcept { return comm_.rank() < plan_.replica_size(); }

  std::chrono::milliseconds timeout() const { return pipeline::timeout_of(options_); }

  std::vector<std::string> agree_on(const std::function<std::string()>& step) const {
    return comm::agree_on(comm_.control(), timeout(), step);
  }

  // Changes nothing yet. Returns a random name of the group, that of rank 0.
  std::string begin() {
    const auto told = agree_on([&]() -> std::string {
      pipeline::check_options(options_);
      if (plan_.world() != comm_.size()) {
        throw ConfigError("the plan is for " + std::to_string(plan_.world()) + " ranks, not " +
                          std::to_string(comm_.size()));
      }
      missing_ = core::missing_directories(directory_);
      return core::hexadecimal(core::random_bytes(group_bytes));
    });
    return told.front();
  }

  // Rank 0 goes first: no other rank needs to lock a directory that it has locked.
  void lock_together(const std::string& group) {
    for (const bool first : {true, false}) {
      agree_on([&]() -> std::string {
        if (saves() && (comm_.rank() == 0) == first) lock(group);
        return {};
      });
    }
  }

  void lock(const std::string& group) {
    check_apart_from_source(directory_, plan_.catalog());
    new_directory_.emplace(directory_, missing_);
    holder_ = new_directory_->lock(group, comm_.rank());
    if (holder_ != comm_.rank()) return;
    core::remove_leftovers(directory_,
                           [](const std::string& name) { return shard_rank(name).has_value(); });
    check_entries(directory_, plan_.replica_size());
  }

  void check_room() const {
    const auto told = agree_on([&]() -> std::string {
      if (!saves()) return {};
      const core::NewFile trial(path_);
      return core::to_wire(Prepared{holder_, free_bytes(directory_)});
    });
    std::vector<Prepared> ranks;
    for (std::uint32_t rank = 0; rank < plan_.replica_size(); ++rank) {
      ranks.push_back(core::from_wire<Prepared>(told[rank]));
    }
    check_space(directory_, plan_, ranks);
  }

  void check_model(const TensorSet& model) const {
    pipeline::check_group(model, comm_);
    if (written_) throw ConfigError("the output has already been written");
    if (model.plan().hash() == plan_.hash()) return;
    throw ConfigError(
        "the model was loaded with a different plan from the one that this output was prepared "
        "for");
  }

  static constexpr std::size_t group_bytes = 8;

  fs::path directory_;
  Plan plan_;
  Communicator comm_;
  Options options_;
  fs::path path_;
  bool written_ = false;
  std::vector<fs::path> missing_;  // before any rank has created a directory
  std::optional<core::NewDirectory> new_directory_;
  std::uint32_t holder_ = 0;  // rank that has locked the directory
};

ShardedOutput::ShardedOutput(fs::path directory, const Plan& plan, const Communicator& comm,
                             const Options& options)
    : state_(std::make_unique<State>(std::move(directory), plan, comm, options)) {}

ShardedOutput::ShardedOutput(ShardedOutput&&) noexcept = default;
ShardedOutput& ShardedOutput::operator=(ShardedOutput&&) noexcept = default;
ShardedOutput::~ShardedOutput() = default;

fs::path ShardedOutput::file_of(const fs::path& directory, std::uint32_t rank) {
  return directory / format::shard_name(rank);
}

void ShardedOutput::write(const TensorSet& model) {
  state_->write(model);
}

void save_sharded(const TensorSet& model, const fs::path& directory, const Communicator& comm,
                  const Options& options) {
  ShardedOutput(directory, model.plan(), comm, options).write(model);
}

}  // namespace safeshuffle
