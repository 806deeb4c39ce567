// The exchange contract on NCCL: communicators of the library and of others.
#include "comm/exchange/nccl_transport.hpp"

#include <chrono>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <future>
#include <nccl.h>
#include <optional>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/nccl.hpp"
#include "safeshuffle/session.hpp"

#include "comm/await.hpp"
#include "comm/exchange/nccl_call.hpp"
#include "comm/exchange/nccl_operation.hpp"
#include "contract/control_contract.hpp"
#include "contract/exchange_contract.hpp"
#include "core/descriptor.hpp"
#include "device/cuda/call.hpp"
#include "support/bindings.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"
#include "support/variable.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using comm::check_nccl;
using comm::NcclGroup;
using device::check_cuda;

namespace {

using SharedDevice = std::shared_ptr<device::CudaDevice>;

SharedDevice open_gpu() {
  return std::make_shared<device::CudaDevice>(0);
}

std::string common_id() {
  return gather_texts(world_rank() == 0 ? comm::make_nccl_id() : "").front();
}

std::shared_ptr<NcclGroup> create_group(const SharedDevice& device) {
  return NcclGroup::create(common_id(), world_rank(), world_size(),
                           device->session()->shared_gpu());
}

/// Collective.
std::unique_ptr<comm::Transport> make_transport(const SharedDevice& device) {
  comm::NcclBuffers buffers(device, world_size());
  return comm::make_nccl_transport(create_group(device), std::move(buffers));
}

/// A communicator as an inference engine has it. Collective.
class EngineComm {
 public:
  explicit EngineComm(int blocking) {
    const std::string bytes = common_id();
    ncclUniqueId id{};
    std::copy(bytes.begin(), bytes.end(), id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
    check_nccl(ncclCommInitRankConfig(&comm_, static_cast<int>(world_size()), id,
                                      static_cast<int>(world_rank()), &config),
               "ncclCommInitRankConfig");
    wait();
  }
  ~EngineComm() {
    ncclCommFinalize(comm_);
    // After an error, ncclCommDestroy would leave NCCL's group open on this thread.
    settled() == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
    cudaStreamDestroy(stream_);
  }
  EngineComm(const EngineComm&) = delete;
  EngineComm& operator=(const EngineComm&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

  /// Whether the engine itself can still use it.
  bool works() const {
    std::uint32_t* number = nullptr;
    std::uint32_t sum = 0;
    const std::uint32_t one = 1;
    check_cuda(cudaMalloc(&number, sizeof *number), "cudaMalloc");
    cudaMemcpyAsync(number, &one, sizeof one, cudaMemcpyHostToDevice, stream_);
    check_nccl(ncclAllReduce(number, number, 1, ncclUint32, ncclSum, comm_, stream_), "reduce");
    wait();
    cudaMemcpyAsync(&sum, number, sizeof sum, cudaMemcpyDeviceToHost, stream_);
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    cudaFree(number);
    return sum == world_size();
  }

 private:
  void wait() const {
    const ncclResult_t state = settled();
    if (state == ncclInProgress) throw TimeoutError("the communicator is still busy");
    check_nccl(state, "waiting for the communicator", comm_);
  }

  /// Its state once nothing is in progress, or after five minutes.
  ncclResult_t settled() const {
    const core::Deadline deadline(std::chrono::minutes(5));
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && !deadline.expired()) {
      if (const ncclResult_t code = ncclCommGetAsyncError(comm_, &state); code != ncclSuccess) {
        return code;
      }
    }
    return state;
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// While it lives, this thread has no network.
class Isolation {
 public:
  Isolation() : here_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    works_ = here_ && ::unshare(CLONE_NEWNET) == 0;
  }
  ~Isolation() {
    if (works_) static_cast<void>(::setns(here_.value(), CLONE_NEWNET));
  }
  Isolation(const Isolation&) = delete;
  Isolation& operator=(const Isolation&) = delete;

  bool works() const { return works_; }

 private:
  core::Descriptor here_;
  bool works_ = false;
};

}  // namespace

TEST_CASE("the NCCL transport keeps the contract", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto transport = make_transport(device);
  CHECK(transport->name() == "nccl");
  CHECK(transport->device_bytes() > 0);
  check_exchange_contract(*transport, world_place(), *device);
}

TEST_CASE("a borrowed communicator keeps the contract, and goes on to work", "[.][nccl]") {
  const EngineComm engine(GENERATE(0, 1));
  {
    const Communicator comm = borrow(engine.comm(), engine.stream());
    CHECK(comm.rank() == world_rank());
    CHECK(comm.size() == world_size());
    CHECK(comm.device() == DeviceKind::cuda);
    CHECK(comm.transport_name() == (world_size() == 1 ? "nccl" : "nccl+tcp"));
    check_exchange_contract(comm.transport(), world_place(), *comm.device_handle());
    gathers_texts_of_any_length(comm.control());
  }
  CHECK(engine.works());
}

TEST_CASE("random models arrive over a borrowed communicator", "[.][nccl]") {
  const EngineComm engine(1);
  const auto seed = GENERATE(range(0U, 4U));
  const SharedModel model(testing::random_model(seed), seed);
  const Communicator comm = borrow(engine.comm(), engine.stream());
  const TensorSet loaded = load(model.plan(with_window(16384)), comm);
  const bool right = is_right(loaded, comm.rank());
  verify(loaded, comm);
  const bool works = engine.works();
  CHECK(right);
  CHECK(works);
}

TEST_CASE("lent memory is filled after what the caller's stream has got", "[.][nccl]") {
  const EngineComm engine(1);
  const SharedModel model(plain_model(2));
  const Communicator comm = borrow(engine.comm(), engine.stream());
  const auto device = comm.device_handle();
  const std::uint64_t bytes = model.catalog.tensor_bytes();
  const auto memory = device->allocate(bytes);
  Options options = replicated();
  options.plan.window = 16 << 10;
  options.plan.assignment = Assignment::sliced;  // and so read straight into place
  Session session(model.path(), comm, options);

  std::promise<void> release;
  const auto wait = [](void* promise) {
    static_cast<std::promise<void>*>(promise)->get_future().wait();
  };
  check_cuda(cudaLaunchHostFunc(engine.stream(), wait, &release), "cudaLaunchHostFunc");
  check_cuda(cudaMemsetAsync(memory.get(), 0xff, bytes, engine.stream()), "cudaMemsetAsync");
  const auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    release.set_value();
  });
  session.load_into(whole_tensors(model.catalog, memory.get()));
  std::vector<std::byte> expected;
  for (const TensorInfo& tensor : model.catalog.tensors()) {
    std::ranges::copy(stored_bytes(model.catalog, tensor), std::back_inserter(expected));
  }
  CHECK((download(*device, memory.get(), bytes) == expected));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("runs and broadcasts larger than a piece arrive whole", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto transport = make_transport(device);
  constexpr std::uint64_t bytes = 2 * comm::best_nccl_bytes + 4097;
  testing::PseudoRandom random(world_rank());
  const Bytes mine = random.bytes(bytes);
  const auto send = upload(*device, mine);
  const auto receive = upload(*device, Bytes(bytes));
  const auto shared = upload(*device, mine);
  const std::uint32_t next = (world_rank() + 1) % world_size();
  const std::uint32_t previous = (world_rank() + world_size() - 1) % world_size();
  comm::Exchange exchange;
  if (world_size() > 1) exchange.sends = {{next, send.get(), bytes}};
  if (world_size() > 1) exchange.receives = {{previous, receive.get(), bytes}};
  exchange.broadcasts = {{world_size() - 1, shared.get(), bytes}};
  const auto queue = device->make_queue();
  const bool finished = finish(*transport->exchange(std::move(exchange), *queue));
  CHECK(finished);
  if (world_size() > 1) {
    CHECK(
        (download(*device, receive.get(), bytes) == testing::PseudoRandom(previous).bytes(bytes)));
  }
  CHECK((download(*device, shared.get(), bytes) ==
         testing::PseudoRandom(world_size() - 1).bytes(bytes)));
}

TEST_CASE("pieces are equal, aligned, and neither too large nor too many", "[.][nccl]") {
  constexpr std::uint64_t best = comm::best_nccl_bytes;
  CHECK(comm::nccl_piece_bytes(1) == 16);
  CHECK(comm::nccl_piece_bytes(best) == best);
  CHECK(comm::nccl_piece_bytes(best + 1) == best / 2 + 16);
  CHECK(comm::nccl_piece_bytes(4 * best) == best);
  CHECK(comm::nccl_piece_bytes(4 * best + 1) == best + 16);
  CHECK(comm::nccl_piece_bytes(std::uint64_t{10} << 30) == std::uint64_t{10} << 28);
}

TEST_CASE("a rank that does not come ends in a TimeoutError, and the transport is broken",
          "[.][nccl][lost]") {
  if (world_size() == 1) return;
  const SharedDevice device = open_gpu();
  const auto transport = make_transport(device);
  const auto control = make_world_control();
  const auto queue = device->make_queue();
  // Only what is connected has a kernel that waits for the lost rank, and that must be ended.
  const bool connected = GENERATE(false, true);
  if (connected && !finish(*transport->connect(*queue))) FAIL("cannot connect");
  std::optional<ErrorRecord> seen;
  bool broken = false;
  if (!is_last_rank()) {
    try {
      comm::await(connected ? *transport->exchange({}, *queue) : *transport->connect(*queue),
                  *control, "waiting", std::chrono::seconds(1), [] {});
    } catch (const TimeoutError& error) {
      seen = error.record();
    }
    try {
      transport->exchange({}, *queue);
    } catch (const TransportError&) {
      broken = true;
    }
  }
  if (is_last_rank()) {  // takes the roll call, so that MPI can be ended in order
    std::this_thread::sleep_for(std::chrono::seconds(4));
    control->all_gather("", patience());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_last_rank()) return;
  REQUIRE(seen);
  CHECK(seen->cause == "waiting: no answer within 1 s");
  CHECK(seen->rank == static_cast<std::int32_t>(world_size()) - 1);
  CHECK(broken);
  CHECK(queue->idle());
  CHECK(device->allocate(1 << 20));  // waits for what runs, as freeing it does
}

TEST_CASE("a rank that leaves a load over a borrowed communicator is named", "[.][nccl]") {
  if (world_size() == 1) return;
  const EngineComm engine(0);
  const SharedModel model(plain_model(4));
  std::optional<Communicator> comm = borrow(engine.comm(), engine.stream());
  // Stopped, it keeps its connection; killed, it loses it.
  const bool killed = GENERATE(true, false);
  std::optional<ErrorRecord> seen;
  const auto start = core::Clock::now();
  if (!is_last_rank()) {
    Options options;
    options.timeout = std::chrono::seconds(killed ? 60 : 1);
    try {
      load(model.plan(), *comm, options);
    } catch (const TimeoutError& error) {
      seen = error.record();
    }
  } else if (killed) {
    comm.reset();
  }
  const double seconds = core::seconds_since(start);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(engine.works());
  if (is_last_rank()) return;
  REQUIRE(seen);
  CHECK(seen->rank == static_cast<std::int32_t>(world_size()) - 1);
  CHECK(seen->cause.find("gathering from all ranks: ") == 0);
  CHECK(seconds < 30);
}

TEST_CASE("an address that cannot be reached is named, the same by all ranks", "[.][nccl]") {
  if (world_size() == 1) return;
  if (gather_texts(Isolation().works() ? "yes" : "no").back() == "no") {
    WARN("not tested: this user may not create network namespaces");
    return;
  }
  const EngineComm engine(0);
  REQUIRE(engine.works());
  borrow(engine.comm(), engine.stream());  // NCCL connects by the network, too: at its first use
  std::optional<Isolation> isolation;
  if (is_last_rank()) isolation.emplace();
  const auto start = core::Clock::now();
  std::optional<ErrorRecord> error;
  try {
    borrow(engine.comm(), engine.stream(), std::chrono::seconds(1));
  } catch (const Error& failure) {
    error = failure.record();
  }
  const double seconds = core::seconds_since(start);
  isolation.reset();
  const bool same = same_on_all(error ? error->cause : "");
  const bool works = engine.works();
  CHECK(same);
  CHECK(works);
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::timeout);
  CHECK(error->cause.find("not all ranks could connect to rank 0 at tcp://") == 0);
  CHECK(seconds < 30);
}

TEST_CASE("rank 0 without an allowed interface is a ConfigError of all ranks", "[.][nccl]") {
  if (world_size() == 1) return;
  const EngineComm engine(0);
  const auto error = common_error([&] {
    const Variable interface("NCCL_SOCKET_IFNAME", "=none");
    borrow(engine.comm(), engine.stream());
  });
  CHECK(engine.works());
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
  CHECK(error->rank == 0);
  CHECK(error->cause.find("NCCL_SOCKET_IFNAME '=none'") != std::string::npos);
}

TEST_CASE("an NCCL communicator that is none is a ConfigError", "[.][nccl]") {
  CHECK_THROWS_AS(borrow(nullptr), ConfigError);
}

TEST_CASE("a communicator with an operation in progress cannot be borrowed", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto group = NcclGroup::create(comm::make_nccl_id(), 0, 2, device->session()->shared_gpu());
  CHECK_THROWS_AS(borrow(group->comm()), ConfigError);  // there is no second rank
  group->break_off();
}

TEST_CASE("from_mpi with GPUs exchanges over NCCL", "[.][nccl]") {
  const Communicator comm = world_group();
  CHECK(comm.device() == DeviceKind::cuda);
  CHECK(comm.transport_name() == (world_size() == 1 ? "self" : "nccl+mpi"));
}
