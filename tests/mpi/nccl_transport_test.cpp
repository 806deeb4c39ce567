// The transport contract on NCCL: communicators of the library and of others, with MPI for control
// messages and without.
#include "comm/nccl_transport.hpp"

#include <chrono>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <optional>
#include <string>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/nccl.hpp"

#include "comm/mpi_transport.hpp"
#include "comm/nccl_call.hpp"
#include "comm/nccl_operation.hpp"
#include "contract/transport_contract.hpp"
#include "device/cuda/call.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

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
std::unique_ptr<comm::Transport> make_transport(
    const SharedDevice& device, std::shared_ptr<comm::Transport> control = nullptr) {
  comm::NcclBuffers buffers(device, world_size(), control == nullptr);
  return comm::make_nccl_transport(create_group(device), std::move(buffers), std::move(control));
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
    wait();
    ncclCommDestroy(comm_);
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
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) check_nccl(ncclCommGetAsyncError(comm_, &state), "state");
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

TEST_CASE("NCCL with MPI for control keeps the transport contract", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto transport =
      make_transport(device, comm::make_mpi_transport(MPI_COMM_WORLD, testing::mpi_patience));
  CHECK(transport->name() == "nccl+mpi");
  CHECK(transport->rank() == world_rank());
  CHECK(transport->size() == world_size());
  check_exchange_contract(*transport, *device);  // agreement is MPI's
}

TEST_CASE("NCCL alone keeps the transport contract", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto transport = make_transport(device);
  CHECK(transport->name() == "nccl");
  CHECK(transport->device_bytes() > 0);
  check_transport_contract(*transport, *device);
}

TEST_CASE("a borrowed communicator keeps the contract, and goes on to work", "[.][nccl]") {
  const EngineComm engine(GENERATE(0, 1));
  {
    const Communicator comm = borrow(engine.comm(), engine.stream());
    CHECK(comm.rank() == world_rank());
    CHECK(comm.size() == world_size());
    CHECK(comm.device() == DeviceKind::cuda);
    check_transport_contract(comm.transport(), *comm.device_handle());
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

TEST_CASE("texts longer than the buffers are gathered in rounds", "[.][nccl]") {
  const SharedDevice device = open_gpu();
  const auto transport = make_transport(device);
  const auto text_of = [](std::uint32_t rank) {
    std::string text(9'000'000 / (rank + 1) + rank, static_cast<char>('a' + rank));
    text.front() = '<';
    text.back() = '>';
    return text;
  };
  const auto all = transport->all_gather(text_of(world_rank()), patience());
  bool right = all.size() == world_size();
  for (std::uint32_t rank = 0; right && rank < world_size(); ++rank) {
    right = all[rank] == text_of(rank);
  }
  CHECK(right);
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
  const bool with_control = GENERATE(true, false);
  const auto transport = make_transport(
      device,
      with_control ? comm::make_mpi_transport(MPI_COMM_WORLD, testing::mpi_patience) : nullptr);
  std::optional<ErrorRecord> seen;
  bool broken = false;
  if (!is_last_rank()) {
    const auto queue = device->make_queue();
    try {
      transport->connect(*queue, core::Deadline(std::chrono::seconds(1)));
    } catch (const TimeoutError& error) {
      seen = error.record();
    }
    try {
      transport->exchange({}, *queue);
    } catch (const TransportError&) {
      broken = true;
    }
  }
  if (with_control && is_last_rank()) {  // takes the roll call, so that MPI can be ended in order
    std::this_thread::sleep_for(std::chrono::seconds(4));
    transport->all_gather("", patience());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_last_rank()) return;
  REQUIRE(seen);
  CHECK(seen->cause.find("connecting over NCCL: no answer within 1 s") == 0);
  if (with_control) CHECK(seen->rank == static_cast<std::int32_t>(world_size()) - 1);
  CHECK(broken);
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
