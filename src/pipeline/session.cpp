#include "safeshuffle/session.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "core/text.hpp"
#include "pipeline/load_job.hpp"
#include "pipeline/open_session.hpp"
#include "pipeline/stream.hpp"
#include "source/select.hpp"

namespace safeshuffle {
namespace {

std::uint32_t index_of(const Catalog& catalog, const std::string& name) {
  return static_cast<std::uint32_t>(catalog.find(name) - catalog.tensors().data());
}

std::vector<std::uint64_t> extents_along(const Catalog& catalog,
                                         const std::vector<std::string>& names, std::uint32_t dim) {
  std::vector<std::uint64_t> extents;
  const TensorInfo& first = *catalog.find(names.front());
  for (const std::string& name : names) {
    const TensorInfo& tensor = *catalog.find(name);
    const Shape& shape = tensor.shape;
    if (tensor.dtype != first.dtype) {
      throw ConfigError(
          ErrorRecord{.tensor = name,
                      .cause = "it is " + std::string(safeshuffle::name(tensor.dtype)) + ", and '" +
                               first.name + "' is " + std::string(safeshuffle::name(first.dtype)) +
                               ": what is joined must have one dtype"});
    }
    if (dim >= shape.size()) {
      throw ConfigError(ErrorRecord{.tensor = name,
                                    .cause = "it has " + core::plural(shape.size(), "dimension") +
                                             ", so it cannot be split along dimension " +
                                             std::to_string(dim)});
    }
    extents.push_back(shape[dim]);
  }
  return extents;
}

// Every rank gets its share of each extent, joined.
Placement split_evenly(const std::vector<std::uint64_t>& extents, std::uint32_t dim) {
  Split split{dim, {1, false, true}, {}};
  for (const std::uint64_t extent : extents) split.parts.push_back({extent, {extent, true, false}});
  return {Placement::Kind::sharded, std::move(split)};
}

std::shared_ptr<const Composition> join(const Catalog& catalog,
                                        const std::vector<std::string>& names,
                                        const std::vector<std::uint64_t>& extents,
                                        std::uint32_t dim) {
  auto joined = std::make_shared<Composition>();
  joined->shape = catalog.find(names.front())->shape;
  joined->axis = dim;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    joined->name += (i == 0 ? "" : "+") + names[i];
    if (extents[i] == 0) continue;
    joined->fills.push_back({index_of(catalog, names[i]), 0, end, extents[i]});
    end += extents[i];
  }
  joined->shape[dim] = end;
  return joined;
}

}  // namespace

PlannedLoad::PlannedLoad(std::unique_ptr<pipeline::LoadJob> job) : job_(std::move(job)) {}
PlannedLoad::PlannedLoad(PlannedLoad&&) noexcept = default;
PlannedLoad& PlannedLoad::operator=(PlannedLoad&&) noexcept = default;
PlannedLoad::~PlannedLoad() = default;

const Plan& PlannedLoad::plan() const noexcept {
  return job_->plan();
}

const std::vector<std::string>& PlannedLoad::warnings() const noexcept {
  return job_->warnings();
}

TensorSet PlannedLoad::run() {
  job_->run_together();
  return job_->run();
}

Session::Session(const std::vector<std::string>& paths, const Communicator& comm,
                 const Options& options)
    : cancel_(options.cancel ? options.cancel : std::make_shared<CancelFlag>(0)) {
  Options cancellable = options;
  cancellable.cancel = cancel_;
  session_ = std::make_shared<pipeline::OpenSession>(
      std::make_shared<pipeline::Workspace>(source::make_source(options.remote, options.timeout),
                                            comm, std::move(cancellable)),
      paths);
}

Session::Session(const std::string& path, const Communicator& comm, const Options& options)
    : Session(std::vector<std::string>{path}, comm, options) {}

Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

void Session::reopen(const std::vector<std::string>& paths) {
  session_ = session_->reopened(paths);
}

void Session::reopen(const std::string& path) {
  reopen(std::vector<std::string>{path});
}

const Catalog& Session::catalog() const noexcept {
  return session_->catalog();
}

const std::vector<std::string>& Session::warnings() const noexcept {
  return session_->warnings();
}

const std::vector<std::string>& Session::inputs() const noexcept {
  return session_->inputs();
}

PlannedLoad Session::plan(const Selection& selection) {
  return PlannedLoad(session_->plan(selection));
}

PlannedLoad Session::plan() {
  return plan(session_->options().selection);
}

TensorSet Session::load(const Selection& selection) {
  return plan(selection).run();
}

TensorSet Session::load() {
  return plan().run();
}

Stream::Stream(std::unique_ptr<pipeline::GroupStream> stream) : stream_(std::move(stream)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

std::optional<TensorSet> Stream::next() {
  return stream_->next();
}

Stream Session::stream(const Selection& selection, const StreamOptions& options) {
  return Stream(std::make_unique<pipeline::GroupStream>(session_, selection, options));
}

TensorSet Session::get_tensor(const std::string& name) {
  return session_->fetch("get_tensor", {name}, [](const Catalog&) { return Target{}; });
}

TensorSet Session::get_sharded(const std::string& name, std::uint32_t dim) {
  return session_->fetch("get_sharded along dimension " + std::to_string(dim), {name},
                         [&](const Catalog& catalog) {
                           return Target{0, split_evenly(extents_along(catalog, {name}, dim), dim)};
                         });
}

TensorSet Session::push(const std::string& name, std::uint32_t rank) {
  return session_->fetch("push to rank " + std::to_string(rank), {name}, [&](const Catalog&) {
    return Target{0, {Placement::Kind::single, {}, rank}};
  });
}

TensorSet Session::get_columns(const std::vector<std::string>& names, std::uint32_t dim) {
  return session_->fetch(
      "get_columns along dimension " + std::to_string(dim), names, [&](const Catalog& catalog) {
        const std::vector<std::uint64_t> extents = extents_along(catalog, names, dim);
        const auto filled =
            std::ranges::find_if(extents, [](std::uint64_t extent) { return extent; });
        if (filled == extents.end()) {
          return Target{index_of(catalog, names.front()), split_evenly({0}, dim)};
        }
        const auto first = static_cast<std::size_t>(filled - extents.begin());
        return Target{index_of(catalog, names[first]), split_evenly(extents, dim),
                      join(catalog, names, extents, dim)};
      });
}

TensorSet Session::get_slice(const std::string& name, const std::vector<Interval>& ranges) {
  return session_->get_slice(name, ranges);
}

Report Session::load_into(std::span<const Binding> bindings, std::shared_ptr<void> owner) {
  return session_->load_into(bindings, std::move(owner));
}

Report Session::load_into(std::span<const Parameter> parameters, std::shared_ptr<void> owner) {
  return session_->load_into(parameters, std::move(owner));
}

void Session::cancel(std::int32_t code) noexcept {
  *cancel_ = code;
}

TensorSet load(const std::vector<std::string>& paths, const Communicator& comm,
               const Options& options) {
  return Session(paths, comm, options).load();
}

TensorSet load(const std::string& path, const Communicator& comm, const Options& options) {
  return load(std::vector<std::string>{path}, comm, options);
}

TensorSet load(const Plan& plan, const Communicator& comm, const Options& options) {
  return pipeline::planned_load(source::make_source(options.remote, options.timeout), plan, comm,
                                options)
      ->run();
}

}  // namespace safeshuffle
