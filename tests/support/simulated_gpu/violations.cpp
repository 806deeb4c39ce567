#include "support/simulated_gpu/violations.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unistd.h>
#include <vector>

#include "support/simulated_gpu/inspect.hpp"

namespace simulated_gpu {
namespace {

struct Violations {
  std::mutex mutex;
  std::vector<std::string> texts;
  std::string of_exit;  // empty: a normal exit is allowed
};

// Never destroyed: streams may still work while the process exits.
Violations& record() {
  static auto* const violations = new Violations;
  return *violations;
}

std::string violation_of_exit() {
  const std::scoped_lock lock(record().mutex);
  return record().of_exit;
}

void exit_with_violations() {
  if (const std::string text = violation_of_exit(); !text.empty()) report_violation(text);
  const std::vector<std::string> texts = violations();
  if (texts.empty()) return;
  std::fprintf(stderr, "simulated GPU: %zu rules broken\n", texts.size());
  for (const std::string& text : texts) std::fprintf(stderr, "  %s\n", text.c_str());
  std::fflush(nullptr);
  _exit(violation_status);
}

// Registered before main, so that it runs after everything that the program itself does at exit.
[[maybe_unused]] const int registered = std::atexit(exit_with_violations);

}  // namespace

void report_violation(const std::string& text) {
  std::fprintf(stderr, "simulated GPU: rule broken: %s\n", text.c_str());
  const std::scoped_lock lock(record().mutex);
  record().texts.push_back(text);
}

void forbid_exit(const std::string& text) {
  const std::scoped_lock lock(record().mutex);
  record().of_exit = text;
}

std::vector<std::string> violations() {
  const std::scoped_lock lock(record().mutex);
  return record().texts;
}

void clear_violations() {
  const std::scoped_lock lock(record().mutex);
  record().texts.clear();
}

}  // namespace simulated_gpu
