// The interop header: what frameworks get to see of a tensor, and for how long.
#include "safeshuffle/dlpack.hpp"

#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "output/file_writer.hpp"
#include "pipeline/dlpack_abi.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;

namespace {

struct Deleter {
  void operator()(auto* tensor) const { tensor->deleter(tensor); }
};
using Exported = std::unique_ptr<DLManagedTensorVersioned, Deleter>;
using Unversioned = std::unique_ptr<DLManagedTensor, Deleter>;

/// One file of these tensors, of which the bytes count up from 1; loaded on the host.
TensorSet load_model(const std::vector<format::TensorSpec>& specs) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "model.safetensors";
  output::FileWriter writer(path, format::layout_header(specs, {}));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::uint64_t bit_count = bits(specs[i].dtype);
    for (const std::uint64_t extent : specs[i].shape) bit_count *= extent;
    std::vector<std::uint8_t> bytes(bit_count / 8);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
    writer.write(i, 0, std::as_bytes(std::span(bytes)));
  }
  writer.commit();
  Options options;
  options.tp_plan = "replicate";
  return load(path, self(), options);
}

Exported exported(const TensorSet& model, const std::string& name) {
  return Exported(to_dlpack(model, model.at(name)));
}

std::vector<std::int64_t> values(const std::int64_t* first, int count) {
  return {first, first + count};
}

}  // namespace

TEST_CASE("an exported tensor is the tensor itself", "[dlpack]") {
  const TensorSet model = load_model({{"w", DType::BF16, {2, 3, 4}}});
  const Exported tensor = exported(model, "w");
  CHECK(tensor->version.major == 1);
  CHECK(tensor->flags == 0);
  const DLTensor& seen = tensor->dl_tensor;
  CHECK(seen.data == model.at("w").data);
  CHECK(seen.byte_offset == 0);
  CHECK(seen.device.device_type == kDLCPU);
  CHECK(seen.device.device_id == 0);
  CHECK(values(seen.shape, seen.ndim) == std::vector<std::int64_t>{2, 3, 4});
  CHECK(values(seen.strides, seen.ndim) == std::vector<std::int64_t>{12, 4, 1});
}

TEST_CASE("scalars and tensors without elements are exported", "[dlpack]") {
  const TensorSet model =
      load_model({{"scalar", DType::F32, {}}, {"empty", DType::F32, {3, 0, 2}}});
  const Exported scalar = exported(model, "scalar");
  CHECK(scalar->dl_tensor.ndim == 0);
  CHECK(*static_cast<const std::uint32_t*>(scalar->dl_tensor.data) == 0x04030201);
  const Exported empty = exported(model, "empty");
  CHECK(empty->dl_tensor.data == nullptr);
  CHECK(values(empty->dl_tensor.shape, 3) == std::vector<std::int64_t>{3, 0, 2});
  CHECK(values(empty->dl_tensor.strides, 3) == std::vector<std::int64_t>{2, 2, 1});
}

TEST_CASE("types are said in DLPack's words", "[dlpack]") {
  const auto& [dtype, code] =
      GENERATE(table<DType, DLDataTypeCode>({{DType::U8, kDLUInt},
                                             {DType::U16, kDLUInt},
                                             {DType::U32, kDLUInt},
                                             {DType::U64, kDLUInt},
                                             {DType::I8, kDLInt},
                                             {DType::I16, kDLInt},
                                             {DType::I32, kDLInt},
                                             {DType::I64, kDLInt},
                                             {DType::F16, kDLFloat},
                                             {DType::F32, kDLFloat},
                                             {DType::F64, kDLFloat},
                                             {DType::BF16, kDLBfloat},
                                             {DType::C64, kDLComplex},
                                             {DType::BOOL, kDLBool},
                                             {DType::F8_E4M3, kDLFloat8_e4m3fn},
                                             {DType::F8_E8M0, kDLFloat8_e8m0fnu},
                                             {DType::F6_E3M2, kDLFloat6_e3m2fn},
                                             {DType::F4, kDLFloat4_e2m1fn}}));
  const TensorSet model = load_model({{"w", dtype, {8}}});
  const Exported tensor = exported(model, "w");
  CHECK(tensor->dl_tensor.dtype.code == code);
  CHECK(tensor->dl_tensor.dtype.bits == bits(dtype));
  CHECK(tensor->dl_tensor.dtype.lanes == 1);
}

TEST_CASE("consumers of DLPack before 1.0 get what it had", "[dlpack]") {
  const TensorSet model = load_model({{"old", DType::BOOL, {8}}, {"new", DType::F8_E4M3, {8}}});
  const Unversioned old(to_unversioned_dlpack(model, model.at("old")));
  CHECK(old->dl_tensor.data == model.at("old").data);
  CHECK(old->dl_tensor.dtype.code == kDLBool);
  const auto error =
      testing::failure<ConfigError>([&] { to_unversioned_dlpack(model, model.at("new")); });
  CHECK(error.tensor == "new");
  CHECK(error.cause.find("F8_E4M3") != std::string::npos);
}

TEST_CASE("an exported tensor outlives the model, and may be deleted anywhere", "[dlpack]") {
  auto model = std::make_unique<TensorSet>(load_model({{"w", DType::U8, {4}}}));
  const std::weak_ptr<const void> memory = model->owner();
  Exported first = exported(*model, "w");
  Exported second = exported(*model, "w");
  model.reset();
  REQUIRE_FALSE(memory.expired());
  const auto* data = static_cast<const std::uint8_t*>(first->dl_tensor.data);
  CHECK(std::vector<std::uint8_t>(data, data + 4) == std::vector<std::uint8_t>{1, 2, 3, 4});
  first.reset();
  REQUIRE_FALSE(memory.expired());
  std::async(std::launch::async, [&] { second.reset(); }).get();
  CHECK(memory.expired());
}
