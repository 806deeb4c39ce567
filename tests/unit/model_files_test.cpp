// Names of files: series that lack some, and what is not the model.
#include "format/model_files.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace safeshuffle;
using format::missing_files;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a series is complete from 0 or 1 on", "[format][model_files]") {
  const Names complete = GENERATE(
      Names{}, Names{"model.safetensors"}, Names{"model-00001-of-00001.safetensors"},
      Names{"a_0-of-2.safetensors", "a_1-of-2.safetensors"},
      Names{"a-1-of-2.safetensors", "a-2-of-2.safetensors", "b-1-of-1.safetensors"},
      Names{"a-00001-of-000002.safetensors", "a-00002-of-000002.safetensors"},
      Names{"model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"},
      Names{"-of-2.safetensors", "a-1-of-.safetensors", "a-1-of-2x.safetensors", "a-1-of-2"},
      Names{"a-1-of-0.safetensors", "a-1-of-99999999999999999999.safetensors"});
  CHECK(missing_files(complete).empty());
}

TEST_CASE("missing files are named as the others", "[format][model_files]") {
  CHECK(missing_files({"a-00001-of-00003.safetensors"}) ==
        "a-00002-of-00003.safetensors, a-00003-of-00003.safetensors");
  CHECK(missing_files({"a_0-of-3.safetensors", "a_2-of-3.safetensors"}) == "a_1-of-3.safetensors");
  CHECK(missing_files({"a-10-of-10.safetensors"}).starts_with("a-1-of-10.safetensors, "));
  CHECK(missing_files({"a-1-of-1.safetensors", "b-2-of-2.safetensors"}) == "b-1-of-2.safetensors");
  CHECK(missing_files({"model-rank-3-part-1.safetensors", "model-rank-3-part-3.safetensors"}) ==
        "model-rank-3-part-0.safetensors, model-rank-3-part-2.safetensors");
}

TEST_CASE("of many missing files, some are named", "[format][model_files]") {
  const std::string most = "18446744073709551615";
  const std::string text = missing_files({"a-1-of-" + most + ".safetensors"});
  CHECK(text.starts_with("a-2-of-" + most + ".safetensors, "));
  CHECK(text.ends_with(" and 18446744073709551606 more"));
  CHECK(missing_files({"model-rank-0-part-4294967295.safetensors"})
            .ends_with(" and 4294967287 more"));
}

TEST_CASE("adapters are known by their names", "[format][model_files]") {
  for (const char* name : {"adapter_model.safetensors", "adapter_model-00001-of-00002.safetensors",
                           "adapters.safetensors", "pytorch_lora_weights.safetensors"}) {
    CHECK(format::is_adapter_file(name));
  }
  for (const char* name : {"model.safetensors", "exploration.safetensors", "loran.safetensors"}) {
    CHECK_FALSE(format::is_adapter_file(name));
  }
}

TEST_CASE("a copy is left out only beside the files of a model", "[format][model_files]") {
  const auto files = [](const Names& names) { return format::sort_model_files(names); };
  const Names copies{"consolidated-1-of-2.safetensors", "consolidated-2-of-2.safetensors"};
  CHECK(files(copies).model == copies);
  CHECK(files({copies[0], copies[1], "model.safetensors"}).model == Names{"model.safetensors"});
  CHECK(files({copies[0], copies[1], "model.safetensors"}).copies == copies);
  CHECK(files({"adapters.safetensors"}).model == Names{"adapters.safetensors"});
}
