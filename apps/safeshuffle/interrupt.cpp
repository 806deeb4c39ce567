#include "interrupt.hpp"

#include <atomic>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

#include "safeshuffle/error.hpp"

#include "core/launcher.hpp"
#include "core/new_files.hpp"
#include "core/thread.hpp"

namespace safeshuffle::app {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// The signals with which a terminal, a batch system or mpirun ends a process. One that is ignored,
// as under nohup or in shells without job control, stays ignored.
sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

// This thread is now the only one that does not block the signal.
void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::kill(::getpid(), signal);
}

// For what was cancelled to end by itself. Launchers kill after a second.
timespec patience() {
  return core::how_launched() == core::Launch::alone ? timespec{5, 0} : timespec{0, 800'000'000};
}

std::atomic<CancelFlag*> cancel_flag{nullptr};

void wait_and_end(const sigset_t& signals) {
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  if (CancelFlag* const flag = cancel_flag) {
    *flag = signal;
    const timespec most = patience();
    sigtimedwait(&signals, nullptr, &most);  // or until the next signal
  }
  core::roll_back_unfinished();
  end_by(signal);
}

}  // namespace

void clean_up_on_signals() {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    core::start_thread([signals] { wait_and_end(signals); }).detach();
  } catch (const MemoryError&) {  // signals then end the process without cleaning up
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
}

std::shared_ptr<CancelFlag> cancel_on_signals() {
  static const auto flag = std::make_shared<CancelFlag>(0);
  cancel_flag = flag.get();
  return flag;
}

}  // namespace safeshuffle::app
