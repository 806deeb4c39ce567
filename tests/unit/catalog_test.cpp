// format: the catalog of a checkpoint.
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;

namespace {

TensorInfo tensor(std::string name, std::uint32_t file, std::uint64_t bytes) {
  return {.name = std::move(name), .shape = {bytes}, .file = file, .bytes = bytes};
}

std::vector<FileInfo> files(std::size_t count) {
  std::vector<FileInfo> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i].path.append("f").append(std::to_string(i));
  return result;
}

}  // namespace

TEST_CASE("an empty catalog holds nothing", "[format][catalog]") {
  const Catalog catalog;
  CHECK(catalog.files().empty());
  CHECK(catalog.find("a") == nullptr);
  CHECK(catalog.tensor_bytes() == 0);
}

TEST_CASE("a catalog finds tensors by name and by file", "[format][catalog]") {
  const Catalog catalog(files(3), {tensor("c", 0, 1), tensor("a", 0, 2), tensor("b", 2, 4)});
  CHECK(catalog.tensor_bytes() == 7);
  CHECK(catalog.tensors_of(catalog.files()[0]).size() == 2);
  CHECK(catalog.tensors_of(catalog.files()[1]).empty());
  REQUIRE(catalog.tensors_of(catalog.files()[2]).size() == 1);
  CHECK(catalog.tensors_of(catalog.files()[2])[0].name == "b");
  for (const TensorInfo& each : catalog.tensors()) CHECK(catalog.find(each.name) == &each);
  CHECK(catalog.find("") == nullptr);
  CHECK(catalog.find("bb") == nullptr);
  CHECK(catalog.find("d") == nullptr);
}

TEST_CASE("a tensor in two files is refused with both files", "[format][catalog]") {
  const ErrorRecord record = testing::failure<FormatError>([] {
    Catalog(files(2), {tensor("a", 0, 1), tensor("b", 0, 1), tensor("a", 1, 1)});
  });
  CHECK(record.file == "f1");
  CHECK(record.tensor == "a");
  CHECK(record.cause.find("f0") != std::string::npos);
}
