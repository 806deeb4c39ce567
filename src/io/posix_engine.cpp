#include <utility>

#include "core/thread_pool.hpp"
#include "io/engine.hpp"

namespace safeshuffle::io {
namespace {

// Makes the calls of a job that is to begin, one after the other.
void run(Job& job) noexcept {
  try {
    RangeRead& reading = job.begin();
    while (const auto call = reading.next()) reading.make(*call);
  } catch (...) {
    return job.end(std::current_exception());
  }
  job.end(nullptr);
}

class PosixEngine final : public Engine {
 public:
  explicit PosixEngine(unsigned threads) : threads_(threads), pool_(threads) {}

  void start(std::unique_ptr<Job> job) override {
    pool_.submit([shared = std::shared_ptr<Job>(std::move(job))] { run(*shared); });
  }

  std::string name() const override { return "posix"; }
  unsigned threads() const noexcept override { return threads_; }

 private:
  const unsigned threads_;
  core::ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Engine> make_posix_engine(unsigned threads) {
  return std::make_unique<PosixEngine>(threads);
}

}  // namespace safeshuffle::io
