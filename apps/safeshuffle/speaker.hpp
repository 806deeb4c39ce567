// Which rank says what happened, where ranks cannot agree any more because one of them may be
// stuck: that one is never waited for.
#pragma once

namespace safeshuffle::app {

/// What a rank knows of the failure; the better comes first.
enum class Knowledge : int {
  own_failure,   ///< it has failed itself
  lost_another,  ///< it only misses another rank
};

/// Whether this rank is to speak for all ranks of an MPI job. Called once, by every rank that gives
/// up, on the thread that MPI was begun on; takes about two seconds. Of the ranks that call it
/// within a second of each other, the one with the best knowledge speaks, of several the lowest;
/// one that calls it later finds that another has spoken.
bool speaks_for_job(Knowledge knowledge);

/// The same among the processes of a job on this node, on any thread and before MPI has begun: the
/// first that asks speaks. Where the launcher gives them no directory of their own (PMIx does), all
/// that ask speak.
bool speaks_for_node();

}  // namespace safeshuffle::app
