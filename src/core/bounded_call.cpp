#include "core/bounded_call.hpp"

#include <future>
#include <utility>

#include "core/detached_work.hpp"
#include "core/thread.hpp"

namespace safeshuffle::core {

bool returns_within(std::chrono::milliseconds patience, std::function<void()> call) {
  std::packaged_task<void()> task([call = std::move(call)] {
    const DetachedWork work;
    call();
  });
  const std::future<void> back = task.get_future();
  start_thread(std::move(task)).detach();
  return back.wait_for(patience) == std::future_status::ready;
}

}  // namespace safeshuffle::core
