// Cleaning up when a signal ends the command.
#pragma once

#include <memory>

#include "safeshuffle/options.hpp"

namespace safeshuffle::app {

/// From now on, SIGINT, SIGTERM and SIGHUP, unless they are ignored, end the process only after
/// unfinished files are removed (core/new_files.hpp); they still end it at once, with the status
/// of that signal. Call this before other threads are started: they inherit the mask that blocks
/// the signals, for which a dedicated thread waits.
void clean_up_on_signals();

/// For Options::cancel, from now on: the first of these signals cancels what is in progress, and
/// ends the process only if that takes longer than a moment, or if another one follows.
std::shared_ptr<CancelFlag> cancel_on_signals();

}  // namespace safeshuffle::app
