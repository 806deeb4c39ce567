// The functions of loader.hpp that load, from files.
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "pipeline/load_job.hpp"
#include "source/files.hpp"

namespace safeshuffle {

struct PlannedLoad::State {
  pipeline::LoadJob job;
};

PlannedLoad::PlannedLoad(const std::vector<std::string>& paths, const Communicator& comm,
                         const Options& options)
    : state_(new State{pipeline::LoadJob(source::files(), paths, comm, options)}) {}

PlannedLoad::PlannedLoad(PlannedLoad&&) noexcept = default;
PlannedLoad& PlannedLoad::operator=(PlannedLoad&&) noexcept = default;
PlannedLoad::~PlannedLoad() = default;

const Plan& PlannedLoad::plan() const noexcept {
  return state_->job.plan();
}

const std::vector<std::string>& PlannedLoad::warnings() const noexcept {
  return state_->job.warnings();
}

const std::vector<std::string>& PlannedLoad::inputs() const noexcept {
  return state_->job.inputs();
}

TensorSet PlannedLoad::run() {
  return state_->job.run();
}

TensorSet load(const Plan& plan, const Communicator& comm, const Options& options) {
  return pipeline::LoadJob(source::files(), plan, comm, options).run();
}

TensorSet load(const std::vector<std::string>& paths, const Communicator& comm,
               const Options& options) {
  return PlannedLoad(paths, comm, options).run();
}

TensorSet load(const std::string& path, const Communicator& comm, const Options& options) {
  return load(std::vector<std::string>{path}, comm, options);
}

}  // namespace safeshuffle
