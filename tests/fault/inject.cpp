// A library to preload into a command: makes chosen system and MPI calls fail, lie, or stop the
// process, on one rank. The rules come from the environment variable FAULTS, separated by ';', each
// made of words "key=value":
//
//   rank=N          the rank that is hit                            (default: all)
//   call=NAME       open, pread, pwrite, rename, link, statvfs, or of MPI: send (MPI_Isend), init
//                   (MPI_Init_thread), duplicate (MPI_Comm_idup), finalize
//   path=TEXT       is part of the path of the file (default: any)
//   flags=N         all these bits are set in what open is given    (default: 0)
//   from=N          the first offset in the file, or tag, that is hit (default: 0)
//   thread=WHICH    main or worker                                  (default: any)
//   skip=N          matching calls that go through first            (default: 0)
//   times=N         calls that are hit                              (default: all)
//   action=WHAT     errno, short, flip, truncate, sleep, stop, stop_later, kill, full, or log (of
//                   pread)
//   value=N         the errno, the size to truncate to, bytes left free, or milliseconds: to sleep,
//                   or before it stops
//   to=FILE         where the bytes of each call are logged, one number a line
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <mpi.h>

namespace {

using Words = std::map<std::string, std::string>;

/// One call as a rule sees it.
struct Call {
  const char* name;
  std::string path;
  std::int64_t offset = 0;
  int flags = 0;
};

class Rule {
 public:
  explicit Rule(const Words& words)
      : call_(text(words, "call")),
        path_(text(words, "path")),
        thread_(text(words, "thread")),
        flags_(static_cast<int>(number(words, "flags", 0))),
        from_(number(words, "from", 0)),
        skip_(number(words, "skip", 0)),
        times_(number(words, "times", INT32_MAX)),
        action_(text(words, "action")),
        log_(text(words, "to")),
        value_(number(words, "value", 0)) {}

  bool hits(const Call& call) {
    const bool matches = call_ == call.name && call.path.find(path_) != std::string::npos &&
                         (call.flags & flags_) == flags_ && call.offset >= from_ && right_thread();
    if (!matches) return false;
    const std::int64_t count = seen_++;
    return count >= skip_ && count - skip_ < times_;
  }

  const std::string& action() const { return action_; }
  std::int64_t value() const { return value_; }
  const std::string& log() const { return log_; }

  static std::string text(const Words& words, const std::string& key) {
    const auto found = words.find(key);
    return found == words.end() ? std::string() : found->second;
  }
  static std::int64_t number(const Words& words, const std::string& key, std::int64_t absent) {
    const std::string value = text(words, key);
    return value.empty() ? absent : std::stoll(value);
  }

 private:
  bool right_thread() const {
    const bool main_thread = ::getpid() == ::syscall(SYS_gettid);
    return thread_.empty() || (thread_ == "main") == main_thread;
  }

  std::string call_;
  std::string path_;
  std::string thread_;
  int flags_;
  std::int64_t from_;
  std::int64_t skip_;
  std::int64_t times_;
  std::string action_;
  std::string log_;
  std::int64_t value_;
  std::atomic<std::int64_t> seen_{0};
};

bool on_this_rank(const Words& words) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("RANK");  // without MPI
  const std::string wanted = Rule::text(words, "rank");
  return wanted.empty() || (rank != nullptr && wanted == rank);
}

std::deque<Rule> read_rules() {
  std::deque<Rule> rules;
  const char* faults = std::getenv("FAULTS");
  std::istringstream text(faults == nullptr ? "" : faults);
  for (std::string line; std::getline(text, line, ';');) {
    Words words;
    std::istringstream pairs(line);
    for (std::string pair; pairs >> pair;) {
      const std::size_t middle = pair.find('=');
      words[pair.substr(0, middle)] = pair.substr(middle + 1);
    }
    if (on_this_rank(words)) rules.emplace_back(words);
  }
  return rules;
}

/// The rule that hits this call, if any.
Rule* find(const Call& call) {
  // Never destroyed: threads may still make calls while the process ends.
  static auto* const rules = new std::deque<Rule>(read_rules());
  for (Rule& rule : *rules) {
    if (rule.hits(call)) return &rule;
  }
  return nullptr;
}

/// Returns at once; the process stops in whatever it does then.
void stop_later(std::chrono::milliseconds delay) {
  std::thread([delay] {
    std::this_thread::sleep_for(delay);
    ::kill(::getpid(), SIGSTOP);
  }).detach();
}

/// What happens before the call itself; whether the call fails, with errno set.
bool fails(const Rule& rule, const Call& call) {
  if (rule.action() == "stop") ::kill(::getpid(), SIGSTOP);
  if (rule.action() == "stop_later") stop_later(std::chrono::milliseconds(rule.value()));
  if (rule.action() == "kill") ::kill(::getpid(), SIGKILL);
  if (rule.action() == "sleep") ::usleep(static_cast<useconds_t>(rule.value() * 1000));
  if (rule.action() == "truncate" && ::truncate(call.path.c_str(), rule.value()) != 0) ::abort();
  errno = static_cast<int>(rule.value());
  return rule.action() == "errno";
}

std::string path_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  std::string path(4096, '\0');
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return path;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void append(const std::string& path, std::int64_t number) {
  std::ofstream(path, std::ios::app) << std::to_string(number) + "\n" << std::flush;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  // NCCL opens null paths, which glibc declares impossible: a plain comparison is optimised away.
  const char* const volatile given = path;
  const Call call{"open", given == nullptr ? "" : given, 0, flags};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return -1;
  return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

ssize_t pread(int descriptor, void* buffer, std::size_t bytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  const Call call{"pread", path_of(descriptor), offset, 0};
  const Rule* rule = find(call);
  if (rule == nullptr) return real(descriptor, buffer, bytes, offset);
  if (fails(*rule, call)) return -1;
  if (rule->action() == "short") bytes = (bytes + 1) / 2;
  const ssize_t count = real(descriptor, buffer, bytes, offset);
  if (rule->action() == "log") append(rule->log(), count);
  if (rule->action() == "flip" && count > 0) static_cast<char*>(buffer)[count - 1] ^= 1;
  return count;
}

ssize_t pwrite(int descriptor, const void* buffer, std::size_t bytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite");
  const Call call{"pwrite", path_of(descriptor), offset, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return -1;
  return real(descriptor, buffer, bytes, offset);
}

int rename(const char* from, const char* to) noexcept {
  const Call call{"rename", to, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return -1;
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}

int link(const char* from, const char* to) noexcept {
  const Call call{"link", to, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return -1;
  return next<int (*)(const char*, const char*)>("link")(from, to);
}

int statvfs(const char* path, struct statvfs* status) noexcept {
  const Call call{"statvfs", path, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return -1;
  const int result = next<int (*)(const char*, struct statvfs*)>("statvfs")(path, status);
  if (rule != nullptr && rule->action() == "full") {
    status->f_frsize = 1;
    status->f_bavail = static_cast<fsblkcnt_t>(rule->value());
  }
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const Call call{"init", {}, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return MPI_ERR_OTHER;
  return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  const Call call{"duplicate", {}, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return MPI_ERR_OTHER;
  return PMPI_Comm_idup(comm, copy, request);
}

int MPI_Finalize() {
  const Call call{"finalize", {}, 0, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return MPI_ERR_OTHER;
  return PMPI_Finalize();
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Call call{"send", {}, tag, 0};
  const Rule* rule = find(call);
  if (rule != nullptr && fails(*rule, call)) return MPI_ERR_OTHER;
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
}
