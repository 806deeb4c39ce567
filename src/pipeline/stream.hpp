// A checkpoint in groups of bounded size, of which one is read while another is used.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "safeshuffle/session.hpp"
#include "safeshuffle/target.hpp"
#include "safeshuffle/tensor.hpp"

#include "pipeline/load_job.hpp"
#include "pipeline/open_session.hpp"

namespace safeshuffle::pipeline {

/// Behind Stream (safeshuffle/session.hpp). Construction and `next` are collective.
class GroupStream {
 public:
  GroupStream(std::shared_ptr<OpenSession> session, const Selection& selection,
              const StreamOptions& options);

  std::optional<TensorSet> next();

 private:
  void start_next();
  void check_usable();

  std::shared_ptr<OpenSession> session_;
  const StreamOptions options_;
  std::vector<std::vector<Target>> groups_;
  std::size_t started_ = 0;
  Progress progress_;  // before the next group
  bool has_failed_ = false;
  std::unique_ptr<LoadJob> ahead_;                // has begun to read
  std::vector<std::weak_ptr<const void>> given_;  // to the caller
};

}  // namespace safeshuffle::pipeline
