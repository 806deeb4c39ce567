// Single tensors of an open session, and parts of them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/error.hpp"

#include "comm/collective_call.hpp"
#include "core/page.hpp"
#include "core/tensor_bytes.hpp"
#include "core/text.hpp"
#include "pipeline/open_session.hpp"
#include "pipeline/sub_catalog.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/bindings.hpp"
#include "plan/lent_memory.hpp"
#include "plan/targets.hpp"

namespace safeshuffle::pipeline {
namespace {

const TensorInfo& stored_tensor(const Checkpoint& checkpoint, const std::string& name) {
  if (const TensorInfo* const tensor = checkpoint.catalog.find(name)) return *tensor;
  const auto alias = std::ranges::find(checkpoint.aliases, name, &Alias::name);
  throw ConfigError("the checkpoint has no tensor '" + name + "'" +
                    (alias == checkpoint.aliases.end()
                         ? std::string()
                         : ", but stores it as '" + alias->tensor + "'"));
}

Catalog of_names(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  if (checkpoint.sharded_state) {
    throw ConfigError("a sharded state has shards of tensors, which are loaded all at once");
  }
  if (names.empty()) throw ConfigError("no tensor was named");
  std::set<std::uint32_t> chosen;
  const TensorInfo* const first = checkpoint.catalog.tensors().data();
  for (const std::string& name : names) {
    chosen.insert(static_cast<std::uint32_t>(&stored_tensor(checkpoint, name) - first));
  }
  return only(checkpoint.catalog, chosen);
}

// What of a tensor is in these ranges; all of the dimensions that have none.
Box slice_of(const TensorInfo& tensor, std::vector<Interval> ranges) {
  const auto fail = [&](const std::string& cause) {
    throw ConfigError(ErrorRecord{.tensor = tensor.name, .cause = cause});
  };
  const std::size_t dims = tensor.shape.size();
  if (ranges.size() > dims)
    fail("it has " + core::plural(dims, "dimension") + ", not " + std::to_string(ranges.size()));
  for (std::size_t dim = 0; dim < ranges.size(); ++dim) {
    const auto [begin, length] = ranges[dim];
    const std::uint64_t extent = tensor.shape[dim];
    if (begin <= extent && length <= extent - begin) continue;
    fail("dimension " + std::to_string(dim) + " has " + std::to_string(extent) +
         " indices, so the " + std::to_string(length) + " from " + std::to_string(begin) +
         " on cannot be had");
  }
  for (std::size_t dim = ranges.size(); dim < dims; ++dim) ranges.push_back({0, tensor.shape[dim]});
  return box_of(tensor, ranges);
}

// "get_tensor of 'a'": so calls that differ are told apart, even where all ask for nothing.
std::string call_text(const std::string& function, const std::vector<std::string>& names) {
  std::string text = function + " of";
  for (const std::string& name : names) text += " '" + name + "'";
  return text;
}

std::string ranges_text(const std::vector<Interval>& ranges) {
  std::string text;
  for (const auto& [begin, length] : ranges) {
    text +=
        (text.empty() ? " " : ",") + std::to_string(begin) + ":" + std::to_string(begin + length);
  }
  return text;
}

}  // namespace

TensorSet OpenSession::fetch(const std::string& function, const std::vector<std::string>& names,
                             const std::function<Target(const Catalog&)>& target) {
  const auto job = [&] {
    const comm::CollectiveCall call(workspace_->comm(), options().cancel);
    const auto make = [&] {
      const Catalog some = of_names(opened_.checkpoint, names);
      return plan(some, {target(some)});
    };
    return std::make_unique<LoadJob>(workspace_, make,
                                     Origin{call_text(function, names), identity_},
                                     PhaseClock(Phase::plan, options().trace));
  };
  return job()->run();
}

// All ranks need the same, so nothing is gathered.
TensorSet OpenSession::get_slice(const std::string& name, const std::vector<Interval>& ranges) {
  Binding slice;
  const auto job = [&] {
    const Communicator& comm = workspace_->comm();
    const comm::CollectiveCall call(comm, options().cancel);
    const auto lent = std::make_shared<plan::LentMemory>();
    const auto make = [&] {
      const Catalog some = of_names(opened_.checkpoint, {name});
      const TensorInfo& tensor = some.tensors().front();
      slice = {slice_of(tensor, ranges),
               reinterpret_cast<std::byte*>(core::page_bytes),
               plan::loaded_dtype(tensor, options().plan),
               {},
               name};
      slice.strides = dense_strides(slice.box.sizes);
      *lent = plan::lend(some, {&slice, 1});
      lent->new_bytes = core::tensor_bytes(slice.box.sizes, slice.dtype);
      const std::vector<std::vector<plan::Need>> needs(comm.size(), plan::needs_of(*lent));
      return plan(some, plan::bound_targets(some, needs), *lent->new_bytes);
    };
    return std::make_unique<LoadJob>(
        workspace_, make, Origin{call_text("get_slice", {name}) + ranges_text(ranges), identity_},
        PhaseClock(Phase::plan, options().trace), lent);
  };
  const TensorSet filled = job()->run();
  return with_tensor(filled, slice.dtype, slice.box.sizes);
}

}  // namespace safeshuffle::pipeline
