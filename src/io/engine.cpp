#include "io/engine.hpp"

namespace safeshuffle::io {

void run(Job& job) noexcept {
  try {
    RangeRead& reading = job.begin();
    while (const auto call = reading.next()) reading.make(*call);
  } catch (...) {
    return job.end(std::current_exception());
  }
  job.end(nullptr);
}

}  // namespace safeshuffle::io
