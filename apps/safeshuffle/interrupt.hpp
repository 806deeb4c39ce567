// How the command ends when a signal ends it.
#pragma once

namespace safeshuffle::app {

/// From now on SIGINT, SIGTERM and SIGHUP, unless they are ignored, end the process only after
/// unfinished files are taken back (core/unfinished.hpp); they still end it at once, and as that
/// signal. To be called before there are other threads: these inherit that the signals are blocked,
/// and a thread of its own waits for them.
void clean_up_on_signals();

}  // namespace safeshuffle::app
