// Saving each rank's tensors as a safetensors file of its own.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/agreement.hpp"
#include "core/system_call.hpp"
#include "format/writer.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/tensor_state.hpp"

namespace safeshuffle {
namespace {

constexpr std::uint64_t save_chunk = std::uint64_t{16} << 20;

// Widest elements first, then by name, as the reference library writes: so all data is aligned to
// its element size.
std::vector<const TensorView*> in_file_order(const TensorSet& model) {
  std::vector<const TensorView*> views;
  for (const TensorView& view : model) views.push_back(&view);
  std::stable_sort(views.begin(), views.end(), [](const TensorView* a, const TensorView* b) {
    return bits(a->dtype) > bits(b->dtype);
  });
  return views;
}

format::HeaderLayout layout(const std::vector<const TensorView*>& views) {
  std::vector<format::TensorSpec> specs;
  for (const TensorView* view : views) {
    specs.push_back(
        {std::string(view->name), view->dtype, {view->shape.begin(), view->shape.end()}});
  }
  return format::layout_header(specs, {{"format", "pt"}});
}

void write_tensor(format::FileWriter& writer, std::size_t index, const TensorSet& model,
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

std::unique_ptr<format::FileWriter> write_file(const TensorSet& model,
                                               const std::filesystem::path& path,
                                               const comm::Heartbeat& beat) {
  const auto views = in_file_order(model);
  format::HeaderLayout header;
  comm::beat_during(beat, [&] { header = layout(views); });
  auto writer = std::make_unique<format::FileWriter>(path, std::move(header));
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < views.size(); ++i) {
    write_tensor(*writer, i, model, *views[i], buffer, beat);
  }
  writer->flush();
  return writer;
}

void create_output(const std::filesystem::path& directory) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code) core::raise_errno(code.value(), directory.string(), "cannot create the directory");
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string cause) {
  throw ConfigError(ErrorRecord{.file = path.string(), .cause = std::move(cause)});
}

std::string shard_name(std::uint32_t rank) {
  return "model-rank-" + std::to_string(rank) + "-part-0.safetensors";
}

// Shards beside the files they come from would be taken for part of the checkpoint; so would those
// that a larger group has left.
void check_output(const std::filesystem::path& directory, const Plan& plan) {
  std::error_code ignored;
  for (const FileInfo& file : plan.catalog().files()) {
    const std::filesystem::path parent = std::filesystem::path(file.path).parent_path();
    if (std::filesystem::equivalent(parent.empty() ? "." : parent, directory, ignored)) {
      refuse(directory, "the checkpoint itself lies in this directory; save elsewhere");
    }
  }
  const std::filesystem::path stale = directory / shard_name(plan.world());
  if (std::filesystem::exists(stale, ignored)) {
    refuse(stale, "is of a larger group than this one; remove its files or save elsewhere");
  }
}

}  // namespace

void save_sharded(const TensorSet& model, const std::filesystem::path& directory,
                  const Communicator& comm, const Options& options) {
  const std::chrono::milliseconds timeout = pipeline::timeout_of(options);
  const std::filesystem::path path = directory / shard_name(comm.rank());
  std::unique_ptr<format::FileWriter> writer;
  comm::agree_with_heartbeat(comm.transport(), timeout,
                             [&](const comm::Heartbeat& beat) -> std::string {
                               pipeline::check_options(options);
                               pipeline::check_group(model, comm);
                               create_output(directory);
                               check_output(directory, model.plan());
                               writer = write_file(model, path, beat);
                               return {};
                             });
  // Only renames are left; should one fail after all, all ranks take theirs back.
  comm::agree_on(comm.transport(), timeout, [&]() -> std::string {
    writer->publish();
    return {};
  });
  writer->commit();
}

}  // namespace safeshuffle
