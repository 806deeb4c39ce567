// Objects at URLs that are kept in a directory of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "source/source.hpp"

namespace safeshuffle::source {

/// `source`, but all that is read of objects at URLs is also written to files in `directory`, laid
/// out as Hugging Face's cache: in MODEL/blobs, named by version, with a link
/// MODEL/snapshots/COMMIT to each that is complete; for other URLs than hf://, the links are in a
/// directory named like theirs. Once the source is destroyed, what has been written is on the disk,
/// and files are removed, those that were used longest ago first, until all have at most
/// `most_bytes`; 0: no limit. Those that `local` of another such source has returned stay as long
/// as that. Incomplete ones count if nobody has written to them for a day. What cannot be written
/// is not kept: see Requests::not_kept.
std::unique_ptr<Source> make_local_cache(std::unique_ptr<const Source> source,
                                         const std::string& directory, std::uint64_t most_bytes);

}  // namespace safeshuffle::source
