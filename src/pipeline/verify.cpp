// Verification: compares every byte a rank holds with the files. Of the load's data it uses only
// the catalog and the placements; no schedule, no pack items, no vector code, no reader.
#include "pipeline/verify.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/deadline.hpp"
#include "core/wire.hpp"
#include "device/convert.hpp"
#include "format/header.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/tensor_state.hpp"
#include "source/discover.hpp"
#include "source/files.hpp"

namespace safeshuffle {
namespace {

constexpr std::uint64_t verify_chunk = std::uint64_t{8} << 20;

std::uint64_t element_bits_to_bytes(std::uint64_t elements, DType dtype) {
  return elements * bits(dtype) / 8;
}

// A file of the checkpoint, opened and parsed again.
class SourceFile {
 public:
  SourceFile(const source::Source& source, const std::string& path, const comm::Heartbeat& beat)
      : path_(path), handle_(source.open(path, source::Access::cached)) {
    const format::RawHeader raw = source::read_header(source, path);
    comm::beat_during(beat, [&] {
      for (TensorInfo& tensor : format::parse_header(raw.json, raw.file_size, path).tensors) {
        tensors_.emplace(tensor.name, tensor);
      }
    });
  }

  const std::string& path() const noexcept { return path_; }

  const TensorInfo& tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    throw VerificationError(ErrorRecord{
        .file = path_, .tensor = std::string(name), .cause = "the file no longer has this tensor"});
  }

  void read(const TensorInfo& tensor, std::uint64_t offset, std::vector<std::byte>& out) const {
    source::read(*handle_, path_, tensor.file_offset + offset, out);
  }

 private:
  std::string path_;
  std::unique_ptr<source::Handle> handle_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
};

// Visits what one rank holds of one tensor in order, one range of elements at a time.
class TensorVerifier {
 public:
  TensorVerifier(const TensorSet& model, const TensorView& view, const SourceFile& source,
                 const comm::Heartbeat& beat)
      : model_(model),
        view_(view),
        source_(source),
        beat_(beat),
        stored_(source.tensor(view.name)) {}

  void run(const TensorInfo& planned, const Placement& placement, std::uint32_t rank,
           std::uint32_t world) {
    if (stored_.dtype != planned.dtype || stored_.shape != planned.shape) {
      fail(stored_.file_offset, "the tensor of this name in the file has changed");
    }
    if (view_.bytes == 0) return;
    if (placement.kind != Placement::Kind::sharded) {
      compare(0, elements(0));
    } else {
      run_cut(placement.split, rank, world);
    }
    if (verified_bytes_ != view_.bytes) fail(stored_.file_offset, "has the wrong size");
  }

 private:
  void run_cut(const Split& split, std::uint32_t rank, std::uint32_t world) {
    const std::uint64_t extent = stored_.shape[split.axis];
    const std::uint64_t inner = elements(split.axis + 1);
    const std::uint64_t outer = elements(0) / (extent * inner);
    std::vector<Interval> intervals;
    append_intervals(split, extent, rank, world, intervals);
    for (std::uint64_t i = 0; i < outer; ++i) {
      for (const Interval& interval : intervals) {
        compare((i * extent + interval.begin) * inner, interval.length * inner);
      }
    }
  }

  // Product of the extents from dimension `first` on.
  std::uint64_t elements(std::size_t first) const {
    std::uint64_t count = 1;
    for (std::size_t i = first; i < stored_.shape.size(); ++i) count *= stored_.shape[i];
    return count;
  }

  void compare(std::uint64_t first_element, std::uint64_t count) {
    // A multiple of 8 elements fills whole bytes, whatever their width.
    const std::uint64_t step = verify_chunk / bits(stored_.dtype) * 8;
    for (std::uint64_t done = 0; done < count; done += step) {
      compare_block(first_element + done, std::min(step, count - done));
    }
  }

  void compare_block(std::uint64_t first_element, std::uint64_t count) {
    const std::uint64_t offset = element_bits_to_bytes(first_element, stored_.dtype);
    expected_.resize(element_bits_to_bytes(count, stored_.dtype));
    source_.read(stored_, offset, expected_);
    convert(count);
    fetch(expected_.size());
    if (expected_ != loaded_) fail_at_difference(first_element);
    verified_bytes_ += loaded_.size();
    beat_();
  }

  void convert(std::uint64_t count) {
    if (view_.dtype == stored_.dtype) return;
    std::vector<std::byte> converted(element_bits_to_bytes(count, view_.dtype));
    device::scalar_convert(stored_.dtype, view_.dtype)(expected_.data(), converted.data(), count);
    expected_.swap(converted);
  }

  void fetch(std::uint64_t bytes) {
    if (bytes > view_.bytes - verified_bytes_) fail(stored_.file_offset, "has the wrong size");
    TensorView part = view_;
    part.data += verified_bytes_;
    part.bytes = bytes;
    loaded_.resize(bytes);
    model_.copy_to_host(part, loaded_);
  }

  [[noreturn]] void fail_at_difference(std::uint64_t first_element) const {
    const auto [expected, loaded] =
        std::mismatch(expected_.begin(), expected_.end(), loaded_.begin());
    const auto byte = static_cast<std::uint64_t>(expected - expected_.begin());
    const std::uint64_t element = first_element + byte * 8 / bits(view_.dtype);
    fail(stored_.file_offset + element_bits_to_bytes(element, stored_.dtype),
         "element " + std::to_string(element) + " differs from the file");
  }

  [[noreturn]] void fail(std::uint64_t offset, const std::string& cause) const {
    throw VerificationError(ErrorRecord{.file = source_.path(),
                                        .tensor = std::string(view_.name),
                                        .offset = offset,
                                        .cause = cause});
  }

  const TensorSet& model_;
  const TensorView& view_;
  const SourceFile& source_;
  const comm::Heartbeat& beat_;
  TensorInfo stored_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> loaded_;
  std::uint64_t verified_bytes_ = 0;
};

std::uint64_t held_bytes(const TensorSet& model) {
  std::uint64_t bytes = 0;
  for (const TensorView& view : model) bytes += view.bytes;
  return bytes;
}

void verify_rank(const source::Source& source, const TensorSet& model, const Options& options,
                 const comm::Heartbeat& beat) {
  const Catalog& catalog = model.plan().catalog();
  Progress progress{.total_bytes = held_bytes(model)};
  std::map<std::uint32_t, std::vector<const TensorView*>> by_file;
  for (const TensorView& view : model) {
    by_file[catalog.tensors()[view.index].file].push_back(&view);
  }
  for (const auto& [file, views] : by_file) {
    const SourceFile opened(source, catalog.files()[file].path, beat);
    for (const TensorView* view : views) {
      TensorVerifier(model, *view, opened, beat)
          .run(catalog.tensors()[view->index], model.plan().placements()[view->index], model.rank(),
               model.plan().world());
      progress.bytes += view->bytes;
      if (options.on_progress) options.on_progress(progress);
    }
  }
}

}  // namespace

std::vector<double> pipeline::verify(const source::Source& source, const TensorSet& model,
                                     const Communicator& comm, const Options& options) {
  const comm::CollectiveCall call(comm);
  const auto step = [&](const comm::Heartbeat& beat) {
    pipeline::check_options(options);
    pipeline::check_group(model, comm);
    const core::Clock::time_point start = core::Clock::now();
    verify_rank(source, model, options, beat);
    return core::WireWriter().put(core::seconds_since(start)).take();
  };
  const auto by_rank =
      comm::agree_with_heartbeat(comm.control(), pipeline::timeout_of(options), step);
  std::vector<double> seconds;
  for (const std::string& bytes : by_rank) seconds.push_back(core::WireReader(bytes).real());
  return seconds;
}

std::vector<double> verify(const TensorSet& model, const Communicator& comm,
                           const Options& options) {
  return pipeline::verify(source::files(), model, comm, options);
}

}  // namespace safeshuffle
