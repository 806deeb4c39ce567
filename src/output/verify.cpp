// Verification: compares every byte a rank holds with the files. Of the load's data it uses only
// the catalog and the placements; no schedule, no pack items, no vector code, no reader.
#include "output/verify.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
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
#include "plan/schedule.hpp"
#include "source/cached.hpp"
#include "source/discover.hpp"
#include "source/select.hpp"

namespace safeshuffle {
namespace {

constexpr std::uint64_t verify_chunk = std::uint64_t{8} << 20;

std::uint64_t element_bits_to_bytes(std::uint64_t elements, DType dtype) {
  return elements * bits(dtype) / 8;
}

// A file of the checkpoint, opened and parsed again.
class SourceFile {
 public:
  SourceFile(const source::Source& source, const std::string& path, bool read_ahead,
             const comm::Heartbeat& beat)
      : path_(path), handle_(source.open(path, source::Access::cached)) {
    if (!read_ahead) handle_->stop_readahead();
    const format::RawHeader raw = source::read_header(source, path);
    comm::beat_during(beat, [&] {
      for (TensorInfo& tensor : format::parse_header(raw.json, raw.file_size, path).tensors) {
        tensors_.emplace(tensor.name, tensor);
      }
    });
  }

  const std::string& path() const noexcept { return path_; }

  /// As it is in the file now. Throws VerificationError if it is not what was planned with.
  const TensorInfo& tensor(const TensorInfo& planned) const {
    const auto found = tensors_.find(planned.name);
    if (found == tensors_.end()) fail(planned, 0, "the file no longer has this tensor");
    const TensorInfo& stored = found->second;
    if (stored.dtype != planned.dtype || stored.shape != planned.shape) {
      fail(planned, stored.file_offset, "the tensor of this name in the file has changed");
    }
    return stored;
  }

  void read(const TensorInfo& tensor, std::uint64_t offset, std::vector<std::byte>& out) const {
    source::read(*handle_, path_, tensor.file_offset + offset, out);
  }

 private:
  [[noreturn]] void fail(const TensorInfo& planned, std::uint64_t offset, const char* cause) const {
    throw VerificationError(
        ErrorRecord{.file = path_, .tensor = planned.name, .offset = offset, .cause = cause});
  }

  std::string path_;
  std::unique_ptr<source::Handle> handle_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
};

// The files of a catalog, each opened when first needed.
class SourceFiles {
 public:
  SourceFiles(const source::Source& source, const Catalog& catalog, bool read_ahead,
              const comm::Heartbeat& beat)
      : source_(source), catalog_(catalog), read_ahead_(read_ahead), beat_(beat) {}

  /// Valid until the next call.
  const SourceFile& of(const TensorInfo& tensor) {
    const auto found = files_.find(tensor.file);
    if (found != files_.end()) return found->second;
    if (files_.size() == most_open) files_.erase(files_.begin());
    const std::string& path = catalog_.files()[tensor.file].path;
    return files_.try_emplace(tensor.file, source_, path, read_ahead_, beat_).first->second;
  }

 private:
  // Tensors are visited file by file, but one may be composed of parts from many.
  static constexpr std::size_t most_open = 64;

  const source::Source& source_;
  const Catalog& catalog_;
  const bool read_ahead_;  // see io::ReaderOptions
  const comm::Heartbeat& beat_;
  std::map<std::uint32_t, SourceFile> files_;
};

// Visits what one rank holds of one target in order, one range of elements at a time.
class TargetVerifier {
 public:
  TargetVerifier(const TensorSet& model, const TensorView& view, SourceFiles& files,
                 const comm::Heartbeat& beat)
      : model_(model),
        view_(view),
        files_(files),
        beat_(beat),
        tensors_(model.plan().catalog().tensors()),
        target_(model.plan().targets()[view.index]),
        shape_(shape_of(target_, model.plan().catalog())) {}

  void run() {
    check_tensors();
    if (view_.bytes == 0) return;
    const Placement& placement = target_.placement;
    std::optional<std::size_t> last;  // the last axis along which not all is kept as it is stored
    if (placement.kind == Placement::Kind::sharded) last = placement.split.axis;
    if (target_.composition) last = std::max<std::size_t>(last.value_or(0), composed_axis());
    if (last) {
      for (std::size_t axis = 0; axis <= *last; ++axis) kept_.push_back(kept_along(axis));
      std::vector<std::uint64_t> index(*last + 1);
      visit(index, 0);
    } else {
      compare(target_.tensor, 0, tensor_elements(shape_, 0));
    }
    if (verified_bytes_ != view_.bytes) fail(tensors_[target_.tensor], "has the wrong size");
  }

 private:
  std::size_t composed_axis() const { return target_.composition->axis; }

  // Of every tensor that fills the target, even if the rank holds none of its bytes.
  void check_tensors() {
    if (!target_.composition) {
      files_.of(tensors_[target_.tensor]).tensor(tensors_[target_.tensor]);
      return;
    }
    for (const Fill& fill : target_.composition->fills) {
      if (fill.tensor == Fill::zeros) continue;
      files_.of(tensors_[fill.tensor]).tensor(tensors_[fill.tensor]);
    }
  }

  // Product of the extents from dimension `first` on.
  static std::uint64_t tensor_elements(const Shape& shape, std::size_t first) {
    std::uint64_t count = 1;
    for (std::size_t i = first; i < shape.size(); ++i) count *= shape[i];
    return count;
  }

  std::vector<Interval> kept_along(std::size_t axis) const {
    const Placement& placement = target_.placement;
    std::vector<Interval> intervals;
    if (placement.kind == Placement::Kind::sharded && placement.split.axis == axis) {
      const std::uint32_t ranks = model_.plan().replica_size();
      append_intervals(placement.split, shape_[axis], model_.rank() % ranks, ranks, intervals);
    } else {
      intervals.push_back({0, shape_[axis]});
    }
    return intervals;
  }

  // `index`: of the whole target; known before `axis`.
  void visit(std::vector<std::uint64_t>& index, std::size_t axis) {
    for (const Interval& kept : kept_[axis]) {
      if (axis + 1 == index.size()) {
        visit_row(index, kept);
        continue;
      }
      for (std::uint64_t i = kept.begin; i < kept.begin + kept.length; ++i) {
        index[axis] = i;
        visit(index, axis + 1);
      }
    }
  }

  // Indices `kept` of the last axis.
  void visit_row(std::vector<std::uint64_t>& index, Interval kept) {
    while (kept.length != 0) {
      index.back() = kept.begin;
      const std::uint64_t length = compare_part(index, kept.length);
      kept = {kept.begin + length, kept.length - length};
    }
  }

  // Compares the elements from `index` on that come from one place, at most `length` indices of the
  // last axis. Returns their number.
  std::uint64_t compare_part(std::vector<std::uint64_t> index, std::uint64_t length) {
    std::uint32_t tensor = target_.tensor;
    if (target_.composition) {
      const Fill& fill = fill_at(index[composed_axis()]);
      const std::uint64_t in_fill = index[composed_axis()] - fill.target_begin;
      if (composed_axis() + 1 == index.size()) length = std::min(length, fill.length - in_fill);
      index[composed_axis()] = fill.source_begin + in_fill;
      tensor = fill.tensor;
    }
    const std::uint64_t inner = tensor_elements(shape_, index.size());
    if (tensor == Fill::zeros) {
      compare_zeros(length * inner);
      return length;
    }
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      first = first * tensors_[tensor].shape[i] + index[i];
    }
    compare(tensor, first * inner, length * inner);
    return length;
  }

  const Fill& fill_at(std::uint64_t index) const {
    const std::vector<Fill>& fills = target_.composition->fills;
    return *(std::upper_bound(
                 fills.begin(), fills.end(), index,
                 [](std::uint64_t at, const Fill& fill) { return at < fill.target_begin; }) -
             1);
  }

  void compare(std::uint32_t tensor, std::uint64_t first_element, std::uint64_t count) {
    // A multiple of 8 elements fills whole bytes, whatever their width.
    const std::uint64_t step = verify_chunk / bits(tensors_[tensor].dtype) * 8;
    for (std::uint64_t done = 0; done < count; done += step) {
      compare_block(tensors_[tensor], first_element + done, std::min(step, count - done));
    }
  }

  void compare_block(const TensorInfo& planned, std::uint64_t first_element, std::uint64_t count) {
    const SourceFile& file = files_.of(planned);
    const TensorInfo& stored = file.tensor(planned);
    expected_.resize(element_bits_to_bytes(count, stored.dtype));
    file.read(stored, element_bits_to_bytes(first_element, stored.dtype), expected_);
    convert(stored.dtype, count);
    fetch(planned, expected_.size());
    if (expected_ != loaded_) {
      const std::uint64_t element = first_element + first_difference();
      fail(planned, "element " + std::to_string(element) + " differs from the file",
           stored.file_offset + element_bits_to_bytes(element, stored.dtype));
    }
    beat_();
  }

  void compare_zeros(std::uint64_t count) {
    const TensorInfo& first = tensors_[target_.tensor];
    for (std::uint64_t left = element_bits_to_bytes(count, view_.dtype); left != 0;) {
      const std::uint64_t bytes = std::min(left, verify_chunk);
      fetch(first, bytes);
      if (std::ranges::any_of(loaded_, [](std::byte byte) { return byte != std::byte{0}; })) {
        fail(first, "its padding is not zero");
      }
      left -= bytes;
      beat_();
    }
  }

  void convert(DType stored, std::uint64_t count) {
    if (view_.dtype == stored) return;
    std::vector<std::byte> converted(element_bits_to_bytes(count, view_.dtype));
    device::scalar_convert(stored, view_.dtype)(expected_.data(), converted.data(), count);
    expected_.swap(converted);
  }

  void fetch(const TensorInfo& planned, std::uint64_t bytes) {
    if (bytes > view_.bytes - verified_bytes_) fail(planned, "has the wrong size");
    TensorView part = view_;
    part.data += verified_bytes_;
    part.bytes = bytes;
    loaded_.resize(bytes);
    model_.copy_to_host(part, loaded_);
    verified_bytes_ += bytes;
  }

  // The first element of the block in which they differ.
  std::uint64_t first_difference() const {
    const auto [expected, loaded] = std::ranges::mismatch(expected_, loaded_);
    return static_cast<std::uint64_t>(expected - expected_.begin()) * 8 / bits(view_.dtype);
  }

  [[noreturn]] void fail(const TensorInfo& planned, const std::string& cause) const {
    fail(planned, cause, planned.file_offset);
  }

  [[noreturn]] void fail(const TensorInfo& planned, const std::string& cause,
                         std::uint64_t offset) const {
    throw VerificationError(ErrorRecord{.file = model_.plan().catalog().files()[planned.file].path,
                                        .tensor = std::string(view_.name),
                                        .offset = offset,
                                        .cause = cause});
  }

  const TensorSet& model_;
  const TensorView& view_;
  SourceFiles& files_;
  const comm::Heartbeat& beat_;
  std::span<const TensorInfo> tensors_;
  const Target& target_;
  const Shape& shape_;                       // of the whole target
  std::vector<std::vector<Interval>> kept_;  // by axis, up to the last that matters
  std::vector<std::byte> expected_;
  std::vector<std::byte> loaded_;
  std::uint64_t verified_bytes_ = 0;
};

std::uint64_t held_bytes(const TensorSet& model) {
  std::uint64_t bytes = 0;
  for (const TensorView& view : model) bytes += view.bytes;
  return bytes;
}

std::vector<const TensorView*> in_order_of_files(const TensorSet& model) {
  std::vector<const TensorView*> views;
  for (const TensorView& view : model) views.push_back(&view);
  const Plan& plan = model.plan();
  std::ranges::stable_sort(views, {}, [&](const TensorView* view) {
    return plan.catalog().tensors()[plan.targets()[view->index].tensor].file;
  });
  return views;
}

void verify_rank(const source::Source& source, const TensorSet& model, const Options& options,
                 const comm::Heartbeat& beat) {
  const Catalog& catalog = model.plan().catalog();
  Progress progress{.total_bytes = held_bytes(model)};
  SourceFiles files(source, catalog, !options.drop_cache_behind, beat);
  for (const TensorView* view : in_order_of_files(model)) {
    TargetVerifier(model, *view, files, beat).run();
    progress.bytes += view->bytes;
    if (options.on_progress) options.on_progress(progress);
  }
}

void drop_cached(const source::Source& source, const Catalog& catalog) {
  for (const FileInfo& file : catalog.files()) source::drop_cached(source, file.path, 0, file.size);
}

}  // namespace

std::vector<double> output::verify(const source::Source& source, const TensorSet& model,
                                   const Communicator& comm, const Options& options) {
  const comm::CollectiveCall call(comm, options.cancel);
  const auto step = [&](const comm::Heartbeat& beat) {
    pipeline::check_options(options);
    pipeline::check_group(model, comm);
    if (plan::fills_lent_memory(model.plan().schedule())) {
      throw ConfigError("a slice, or what was loaded into memory of the caller, is not verified");
    }
    const core::Clock::time_point start = core::Clock::now();
    verify_rank(source, model, options, beat);
    return core::to_wire(core::seconds_since(start));
  };
  const auto by_rank =
      comm::agree_with_heartbeat(comm.control(), pipeline::timeout_of(options), step);
  std::vector<double> seconds;
  for (const std::string& bytes : by_rank) seconds.push_back(core::from_wire<double>(bytes));
  if (options.drop_cache_behind) drop_cached(source, model.plan().catalog());
  return seconds;
}

std::vector<double> verify(const TensorSet& model, const Communicator& comm,
                           const Options& options) {
  return output::verify(*source::make_source(options.remote, options.timeout), model, comm,
                        options);
}

}  // namespace safeshuffle
