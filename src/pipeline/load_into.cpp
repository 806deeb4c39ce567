// Loads of an open session into memory of the caller.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "comm/collective_call.hpp"
#include "core/text.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "pipeline/open_session.hpp"
#include "plan/bindings.hpp"
#include "plan/lent_memory.hpp"

namespace safeshuffle::pipeline {
namespace {

struct Needs {
  std::vector<plan::Need> list;
};

auto fields(core::As<Needs> auto& needs) {
  return std::tie(needs.list);
}

void check_memory(const std::vector<Binding>& bindings, const device::Device& device) {
  for (const Binding& binding : bindings) {
    if (binding.data == nullptr || device.holds(binding.data)) continue;
    throw PlanError(ErrorRecord{
        .tensor = binding.box.tensor,
        .cause = "'" + binding.name + "' cannot be filled: its memory is not that of this rank's " +
                 device.description()});
  }
}

void expect_writes(const plan::LentMemory& lent, device::Device& device) {
  for (const plan::StridedCopy& copy : lent.copies) {
    const plan::StridedBytes written = destination_of(copy);
    const std::uint64_t span = span_of(written);
    if (bytes_of(written) == span) device.expect_writes(lent.base + written.begin, span);
  }
}

// The target of that name, which the rank must hold.
const Target& target_named(const std::string& name,
                           const std::map<std::string_view, const Target*>& targets,
                           std::uint32_t shard) {
  const auto found = targets.find(name);
  if (found == targets.end())
    throw ConfigError("the rules make no tensor '" + name + "' of the checkpoint");
  if (holds(found->second->placement, shard)) return *found->second;
  throw ConfigError(
      ErrorRecord{.tensor = name, .cause = "this rank has no part of it, or it is not selected"});
}

std::map<std::string_view, const Target*> by_name(const std::vector<Target>& targets,
                                                  const Catalog& catalog) {
  std::map<std::string_view, const Target*> map;
  for (const Target& target : targets) {
    map.emplace(name_of(target, catalog), &target);
    if (!target.composition) continue;
    for (const std::string& alias : target.composition->aliases) map.emplace(alias, &target);
  }
  return map;
}

void check_shape(const Parameter& parameter, const Shape& shard) {
  if (parameter.shape == shard) return;
  throw PlanError(ErrorRecord{.tensor = parameter.name,
                              .cause = "this rank's shard has the shape " + core::list_text(shard) +
                                       ", and the parameter " + core::list_text(parameter.shape)});
}

std::vector<Binding> bindings_by_name(std::span<const Parameter> parameters,
                                      const std::vector<Target>& targets, const Catalog& catalog,
                                      const Communicator& comm) {
  const auto known = by_name(targets, catalog);
  std::vector<Binding> bindings;
  for (const Parameter& parameter : parameters) {
    const Target& target = target_named(parameter.name, known, comm.rank());
    check_shape(parameter,
                shard_shape(shape_of(target, catalog), target.placement, comm.rank(), comm.size()));
    std::ranges::move(bindings_of(catalog, target, comm.rank(), comm.size(),
                                  {parameter.data, parameter.dtype, parameter.strides}),
                      std::back_inserter(bindings));
  }
  return bindings;
}

}  // namespace

// What each rank needs is gathered, so that all make the same plan.
std::unique_ptr<LoadJob> OpenSession::bind(const std::function<std::vector<Binding>()>& bindings,
                                           std::shared_ptr<void> owner) {
  const Communicator& comm = workspace_->comm();
  const comm::CollectiveCall call(comm, options().cancel);
  PhaseClock clock(Phase::plan, options().trace);
  const auto lent = std::make_shared<plan::LentMemory>();
  const auto needs = agree_on_call("load_into", comm, options(), [&] {
    if (opened_.checkpoint.sharded_state) {
      throw ConfigError("a sharded state cannot be loaded into memory of the caller");
    }
    const std::vector<Binding> list = bindings();
    check_memory(list, *comm.device_handle());
    *lent = plan::lend(catalog(), list);
    lent->owner = std::move(owner);
    return core::to_wire(Needs{plan::needs_of(*lent)});
  });
  expect_writes(*lent, *comm.device_handle());
  const auto make = [&] {
    std::vector<std::vector<plan::Need>> by_rank;
    for (const std::string& bytes : needs) by_rank.push_back(core::from_wire<Needs>(bytes).list);
    return plan(catalog(), plan::bound_targets(catalog(), by_rank));
  };
  return std::make_unique<LoadJob>(workspace_, make, Origin{"load_into", identity_},
                                   std::move(clock), lent);
}

Report OpenSession::load_into(std::span<const Binding> bindings, std::shared_ptr<void> owner) {
  return bind([&] { return std::vector<Binding>(bindings.begin(), bindings.end()); },
              std::move(owner))
      ->run()
      .report();
}

Report OpenSession::load_into(std::span<const Parameter> parameters, std::shared_ptr<void> owner) {
  const auto bindings = [&] {
    const Communicator& comm = workspace_->comm();
    const auto targets =
        select_targets(opened_.checkpoint, opened_.tp_plan, options(), comm.size());
    return bindings_by_name(parameters, targets, catalog(), comm);
  };
  return bind(bindings, std::move(owner))->run().report();
}

}  // namespace safeshuffle::pipeline
