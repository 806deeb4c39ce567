// Which rank reports the error if ranks cannot agree any more because one of them may be stuck.
// Nothing here waits for that rank.
#pragma once

namespace safeshuffle::app {

/// What a rank knows about the failure; the best comes first.
enum class Knowledge : int {
  own_failure,   ///< it has failed itself
  lost_another,  ///< it only misses another rank
};

/// Whether this rank is to report the error for all ranks of an MPI job. Called once by every rank
/// that gives up, on the thread that initialised MPI; takes about two seconds. Of the ranks that
/// call it within a second of each other, the one with the best knowledge reports, of several the
/// lowest; a rank that calls it later finds that another has reported.
bool speaks_for_job(Knowledge knowledge);

/// The same among the processes of a job on this node, on any thread and before MPI is initialised:
/// the first that calls it reports. If the launcher provides no directory of the job (PMIx does),
/// all that call it report.
bool speaks_for_node();

}  // namespace safeshuffle::app
