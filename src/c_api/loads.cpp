// Loads of the C interface: planned, on demand, streamed.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/session.hpp"

#include "c_api/error.hpp"
#include "c_api/session.hpp"
#include "c_api/set.hpp"

using namespace safeshuffle;
using c_api::guarded;

struct safeshuffle_plan {
  PlannedLoad load;
};

struct safeshuffle_stream {
  Stream stream;
};

namespace {

safeshuffle_set* keep(TensorSet loaded) {
  return new safeshuffle_set(std::move(loaded));
}

/// Of the first dimensions as given, of the others all.
std::vector<Interval> intervals(const uint64_t* begins, const uint64_t* lengths, size_t dims) {
  std::vector<Interval> intervals;
  for (size_t i = 0; i < dims; ++i) intervals.push_back({begins[i], lengths[i]});
  return intervals;
}

}  // namespace

safeshuffle_error* safeshuffle_session_plan(safeshuffle_session* session, safeshuffle_plan** plan) {
  return guarded([&] { *plan = new safeshuffle_plan{session->open().plan()}; });
}

void safeshuffle_plan_free(safeshuffle_plan* plan) {
  delete plan;
}

safeshuffle_error* safeshuffle_plan_summarize(const safeshuffle_plan* plan, uint32_t rank,
                                              safeshuffle_plan_summary* summary) {
  return guarded([&] {
    const std::vector<RankSummary>& ranks = plan->load.plan().ranks();
    if (rank >= ranks.size()) {
      throw ConfigError("there is no rank " + std::to_string(rank) + " in a plan for " +
                        std::to_string(ranks.size()) + " ranks");
    }
    const RankSummary& of = ranks[rank];
    *summary = {of.read_bytes, of.sent_bytes, of.received_bytes, of.kept_bytes,
                of.peak_device_bytes};
  });
}

safeshuffle_error* safeshuffle_plan_run(safeshuffle_plan* plan, safeshuffle_set** set) {
  return guarded([&] { *set = keep(plan->load.run()); });
}

safeshuffle_error* safeshuffle_session_load(safeshuffle_session* session, safeshuffle_set** set) {
  return guarded([&] { *set = keep(session->open().load()); });
}

safeshuffle_error* safeshuffle_session_get(safeshuffle_session* session, const char* name,
                                           safeshuffle_set** set) {
  return guarded([&] { *set = keep(session->open().get_tensor(name)); });
}

safeshuffle_error* safeshuffle_session_get_slice(safeshuffle_session* session, const char* name,
                                                 size_t dims, const uint64_t* begins,
                                                 const uint64_t* lengths, safeshuffle_set** set) {
  return guarded(
      [&] { *set = keep(session->open().get_slice(name, intervals(begins, lengths, dims))); });
}

safeshuffle_error* safeshuffle_session_get_sharded(safeshuffle_session* session,
                                                   const char* const* names, size_t name_count,
                                                   uint32_t dim, safeshuffle_set** set) {
  return guarded([&] {
    if (name_count == 0) throw ConfigError("no tensor is named");
    *set =
        keep(name_count == 1 ? session->open().get_sharded(*names, dim)
                             : session->open().get_columns(c_api::texts(names, name_count), dim));
  });
}

safeshuffle_error* safeshuffle_session_push(safeshuffle_session* session, const char* name,
                                            uint32_t rank, safeshuffle_set** set) {
  return guarded([&] { *set = keep(session->open().push(name, rank)); });
}

safeshuffle_error* safeshuffle_session_stream(safeshuffle_session* session, const char* const* only,
                                              size_t only_count, uint64_t group_bytes,
                                              uint32_t alive, safeshuffle_stream** stream) {
  return guarded([&] {
    Selection selection = session->options.selection;
    if (only_count != 0) selection.only = c_api::texts(only, only_count);
    *stream = new safeshuffle_stream{session->open().stream(selection, {group_bytes, alive})};
  });
}

void safeshuffle_stream_free(safeshuffle_stream* stream) {
  delete stream;
}

safeshuffle_error* safeshuffle_stream_next(safeshuffle_stream* stream, safeshuffle_set** set) {
  return guarded([&] {
    std::optional<TensorSet> group = stream->stream.next();
    *set = group ? keep(std::move(*group)) : nullptr;
  });
}
