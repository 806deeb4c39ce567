// Finding the files of a checkpoint, reading their headers, holding them against the index.
#include "format/checkpoint.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "core/tensor_bytes.hpp"
#include "core/wire.hpp"
#include "source/discover.hpp"
#include "source/files.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_directory.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using format::Listing;
using testing::byte_tensors;
using testing::failure;
using testing::TemporaryDirectory;

namespace fs = std::filesystem;

namespace {

using Files = std::vector<std::string>;

Listing discover(const Files& paths) {
  return source::discover(source::files(), paths);
}

format::RawHeader read_header(const std::string& path) {
  return source::read_header(source::files(), path);
}

constexpr const char* usual_index = "model.safetensors.index.json";

Catalog open(const std::vector<std::string>& paths) {
  const Listing listing = discover(paths);
  auto file = listing.files.begin();
  const format::Contents contents = format::join_headers(listing, [&] {
    const std::string& path = *file++;
    return format::parse_file_header(read_header(path), path);
  });
  const format::IndexFindings findings = format::compare_with_index(listing, contents);
  if (!findings.mismatches.empty()) raise(findings.mismatches.front());
  return format::without(contents.catalog, findings.copies);
}

std::string index_of(const std::string& weight_map) {
  return R"({"metadata":{"total_size":3,"x":[[1.5,null,true]]},"weight_map":{)" + weight_map + "}}";
}

ErrorRecord io_error(const std::string& path) {
  return failure<IoError>([&] { open({path}); });
}

ErrorRecord index_error(const TemporaryDirectory& directory, const std::string& text) {
  const std::string index = directory.write(usual_index, text);
  const ErrorRecord record = failure<FormatError>([&] { discover({directory.path().string()}); });
  CHECK(record.file == index);
  CHECK(record.offset.has_value());
  return record;
}

bool is(const ErrorRecord& record, FormatErrc code) {
  return record.code == static_cast<int>(code);
}

}  // namespace

TEST_CASE("one file is a checkpoint, whatever its name", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("my weights.bin", byte_tensors({"a", "b"}));
  const Catalog catalog = open({path});
  REQUIRE(catalog.files().size() == 1);
  const FileInfo& file = catalog.files()[0];
  CHECK(file.path == path);
  CHECK(file.size == fs::file_size(path));
  CHECK(file.data_start + 2 == file.size);
  CHECK(file.modified_ns > 0);
  CHECK(catalog.find("b")->file_offset == file.data_start + 1);
}

TEST_CASE("a list of files keeps its order", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const Files paths{directory.write("z.safetensors", byte_tensors({"a"})),
                    directory.write("a.safetensors", byte_tensors({"b"}))};
  CHECK(discover(paths).files == paths);
  CHECK(open(paths).find("b")->file == 1);
}

TEST_CASE("a directory without an index is read in name order", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("b c.safetensors", byte_tensors({"x"}));
  directory.write("a.safetensors", byte_tensors({"y"}));
  directory.write("._a.safetensors", "shadow");
  directory.write("notes.txt", "notes");
  directory.write("config.json", R"({"model_type":"llama"})");
  const Listing listing = discover({directory.path().string()});
  CHECK(listing.files == Files{directory / "a.safetensors", directory / "b c.safetensors"});
  CHECK(listing.index_path.empty());
  CHECK(listing.config_json == R"({"model_type":"llama"})");
}

TEST_CASE("an index decides which files of a directory count", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string index = directory.write(
      usual_index, index_of(R"("x":"b.safetensors","y":"sub/a.safetensors","z":"b.safetensors")"));
  directory.write("b.safetensors", byte_tensors({"x", "z"}));
  directory.write("sub/a.safetensors", byte_tensors({"y"}));
  directory.write("stale.safetensors", "not even a header");
  directory.write("other.safetensors.index.json", "{}");
  for (const std::string& path : {directory.path().string(), index}) {
    const Listing listing = discover({path});
    CHECK(listing.files == Files{directory / "b.safetensors", directory / "sub/a.safetensors"});
    CHECK(listing.index_path == index);
    CHECK(open({path}).tensors().size() == 3);
  }
}

TEST_CASE("beside a sharded state, the original's index is ignored", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string index =
      directory.write(usual_index, index_of(R"("x":"model-00001-of-00001.safetensors")"));
  const std::string first = directory.write("model-rank-0-part-0.safetensors", byte_tensors({"x"}));
  const std::string second =
      directory.write("model-rank-1-part-0.safetensors", byte_tensors({"x"}));
  CHECK(open_checkpoint(directory.path().string()).sharded_state);
  CHECK(discover({directory.path().string()}).files == Files{first, second});
  CHECK(io_error(index).code == ENOENT);
  directory.write("model-00001-of-00001.safetensors", byte_tensors({"x"}));
  CHECK(discover({directory.path().string()}).index_path == index);
}

TEST_CASE("what an index does not name is left out with a warning", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string index =
      directory.write(usual_index, index_of(R"("x":"./x.safetensors","y":"sub/y.safetensors")"));
  directory.write("x.safetensors", byte_tensors({"x"}));
  directory.write("sub/y.safetensors", byte_tensors({"y"}));
  CHECK(discover({directory.path().string()}).warnings.empty());
  directory.write("mtp.safetensors", byte_tensors({"x"}));
  CHECK(discover({directory.path().string()}).warnings ==
        Files{"left out because the index does not name it: mtp.safetensors"});
  CHECK(open_checkpoint(directory.path().string()).warnings.size() == 1);
  CHECK(discover({index}).warnings.empty());  // chosen by the caller
}

TEST_CASE("copies and adapters beside a model are left out with a warning",
          "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string model = directory.write("model.safetensors", byte_tensors({"x"}));
  const std::string copy = directory.write("consolidated.safetensors", byte_tensors({"w"}));
  directory.write("adapter_model.safetensors", byte_tensors({"x.lora_A"}));
  directory.write("speech-lora.safetensors", byte_tensors({"x.lora_B"}));
  const Listing listing = discover({directory.path().string()});
  CHECK(listing.files == Files{model});
  CHECK(listing.warnings ==
        Files{"left out as a second copy of the model: consolidated.safetensors",
              "left out as an adapter of the model: adapter_model.safetensors, "
              "speech-lora.safetensors"});
  CHECK(discover({model, copy}).files == Files{model, copy});
  fs::remove(model);
  CHECK(discover({directory.path().string()}).files == Files{copy});
}

TEST_CASE("an adapter without its model is loaded only if it is named", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("adapter_model.safetensors", byte_tensors({"x"}));
  const ErrorRecord record = io_error(directory.path().string());
  CHECK(record.file == directory.path().string());
  CHECK(
      record.cause.starts_with("the directory has only an adapter, not the model that it "
                               "belongs to: adapter_model.safetensors"));
  CHECK(discover({file}).files == Files{file});
}

TEST_CASE("an adapter in a file of any name is known by its tensors", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  const std::string file = directory.write("extra.safetensors", byte_tensors({"x.lora_A.weight"}));
  const auto open_it = [&](const std::string& given) { return open_checkpoint(given); };
  const ErrorRecord record = failure<IoError>([&] { open_it(path); });
  CHECK(record.file == path);
  CHECK(record.cause.starts_with("the directory has only an adapter"));
  CHECK(open_it(file).catalog.find("x.lora_A.weight") != nullptr);
  directory.write("model.safetensors", byte_tensors({"x.weight", "y.lora_A.weight"}));
  const Checkpoint checkpoint = open_it(path);
  CHECK(checkpoint.warnings == Files{"left out as an adapter of the model: extra.safetensors"});
  CHECK(checkpoint.catalog.tensors().size() == 2);
  CHECK(checkpoint.catalog.find("x.lora_A.weight") == nullptr);
}

TEST_CASE("files that a numbered series lacks are named", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("model-00002-of-00003.safetensors", byte_tensors({"x"}));
  const ErrorRecord record = io_error(directory.path().string());
  CHECK(record.file == directory.path().string());
  CHECK(record.cause.starts_with(
      "files are missing in the directory: model-00001-of-00003.safetensors, "
      "model-00003-of-00003.safetensors;"));
  CHECK(discover({file}).files == Files{file});
  directory.write("model-00001-of-00003.safetensors", byte_tensors({"y"}));
  directory.write("model-00003-of-00003.safetensors", byte_tensors({"z"}));
  CHECK(open({directory.path().string()}).tensors().size() == 3);
}

TEST_CASE("a part that a rank's files lack is named", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("model-rank-0-part-0.safetensors", byte_tensors({"x"}));
  const std::string last = directory.write("model-rank-0-part-2.safetensors", byte_tensors({"y"}));
  CHECK(io_error(directory.path().string())
            .cause.starts_with(
                "files are missing in the directory: model-rank-0-part-1.safetensors;"));
  CHECK(discover({last}).files == Files{last});
}

TEST_CASE("an index of another name is used if it is the only one", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string text = index_of(R"("x":"x.safetensors")");
  const std::string index = directory.write("diffusion.safetensors.index.json", text);
  directory.write("x.safetensors", byte_tensors({"x"}));
  directory.write("y.safetensors", byte_tensors({"y"}));
  CHECK(discover({directory.path().string()}).index_path == index);
  directory.write("second.safetensors.index.json", text);
  CHECK(discover({directory.path().string()}).files.size() == 2);
}

TEST_CASE("links of a cache are followed but keep their names", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("blobs/0123abcd", byte_tensors({"x"}));
  directory.write("blobs/4567", index_of(R"("x":"x.safetensors")"));
  fs::create_directories(directory / "snapshots/main");
  fs::create_symlink("../../blobs/0123abcd", directory / "snapshots/main/x.safetensors");
  fs::create_symlink("../../blobs/4567",
                     directory / (std::string("snapshots/main/") + usual_index));
  const Catalog catalog = open({directory / "snapshots/main"});
  REQUIRE(catalog.files().size() == 1);
  CHECK(catalog.files()[0].path == directory / "snapshots/main/x.safetensors");
  CHECK(catalog.find("x") != nullptr);
}

TEST_CASE("what is not there is an error with its errno", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  CHECK(io_error(directory / "absent").code == ENOENT);
  CHECK(io_error(directory / "absent.index.json").code == ENOENT);
  CHECK(io_error(directory / "absent").file == directory / "absent");
  CHECK(io_error(directory.path().string()).file == directory.path().string());
  CHECK_THROWS_AS(discover({}), IoError);
  fs::create_symlink("nowhere", directory / "x.safetensors");
  CHECK(io_error(directory.path().string()).file == directory / "x.safetensors");
  CHECK(io_error(directory / "x.safetensors").code == ENOENT);
}

TEST_CASE("what is no regular file is refused without waiting for it", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x.safetensors";
  SECTION("a loop of links") {
    fs::create_symlink("x.safetensors", path);
    CHECK(io_error(path).code == ELOOP);
  }
  SECTION("a directory") {
    fs::create_directory(path);
    CHECK(io_error(directory.path().string()).code == EISDIR);
  }
  SECTION("a FIFO") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK(io_error(path).code == EINVAL);
    CHECK(failure<IoError>([&] { read_header(path); }).code == EINVAL);
  }
  CHECK(io_error(directory.path().string()).file == path);
}

TEST_CASE("a file without read permission is refused", "[format][checkpoint]") {
  if (geteuid() == 0) return;  // root may read anything
  const TemporaryDirectory directory;
  const std::string path = directory.write("x.safetensors", byte_tensors({"x"}));
  fs::permissions(path, fs::perms::none);
  CHECK(io_error(path).code == EACCES);
}

TEST_CASE("an index file is given alone", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("x.safetensors", byte_tensors({"x"}));
  CHECK_THROWS_AS(discover({file, directory.path().string()}), IoError);
  CHECK_THROWS_AS(open({file, directory.write("i.json", index_of(R"("x":"x.safetensors")"))}),
                  Error);
}

TEST_CASE("a file given under two names is refused", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string file = directory.write("x.safetensors", testing::raw_file("{}", 0));
  fs::create_symlink("x.safetensors", directory / "y.safetensors");
  const ErrorRecord record = failure<IoError>([&] {
    discover({file, directory / "y.safetensors"});
  });
  CHECK(record.file == directory / "y.safetensors");
  CHECK(record.cause.find(file) != std::string::npos);
  directory.write(usual_index, index_of(R"("x":"x.safetensors","y":"./x.safetensors")"));
  CHECK_THROWS_AS(discover({directory.path().string()}), IoError);
}

TEST_CASE("an index that names a missing file is refused with a tensor", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x"}));
  directory.write(usual_index, index_of(R"("x":"a.safetensors","y":"b.safetensors")"));
  const ErrorRecord record = io_error(directory.path().string());
  CHECK(record.code == ENOENT);
  CHECK(record.file == directory / "b.safetensors");
  CHECK(record.tensor == "y");
}

TEST_CASE("an index and headers that disagree are refused", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x"}));
  directory.write("b.safetensors", byte_tensors({"y", "z"}));
  const auto refused = [&](const std::string& weight_map) {
    directory.write(usual_index, index_of(weight_map));
    const ErrorRecord record = failure<FormatError>([&] { open({directory.path().string()}); });
    return fs::path(record.file).filename().string() + ":" + record.tensor;
  };
  const std::string right = R"("x":"a.safetensors","y":"b.safetensors")";
  CHECK(refused(right) == "b.safetensors:z");
  CHECK(refused(right + R"(,"z":"a.safetensors")") == "a.safetensors:z");
  CHECK(refused(right + R"(,"z":"b.safetensors","w":"a.safetensors")") == "a.safetensors:w");
  directory.write(usual_index, index_of(""));
  CHECK(io_error(directory.path().string()).file == directory / usual_index);
}

TEST_CASE("an index decides which of several copies counts", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x", "y", "u"}));
  directory.write("b.safetensors", byte_tensors({"v", "x", "y"}));
  directory.write("c.safetensors", byte_tensors({"w", "x"}));
  directory.write(usual_index,
                  index_of(R"("y":"a.safetensors","u":"a.safetensors","x":"b.safetensors",)"
                           R"("v":"b.safetensors","w":"c.safetensors")"));
  const Checkpoint checkpoint = open_checkpoint(directory.path().string());
  const auto file_of = [&](const char* name) { return checkpoint.catalog.find(name)->file; };
  CHECK(checkpoint.catalog.tensors().size() == 5);
  CHECK(file_of("x") == 1);
  CHECK(file_of("y") == 0);
  CHECK(checkpoint.catalog.files()[0].tensor_count == 2);
  CHECK(checkpoint.index_mismatches.empty());
  CHECK(checkpoint.warnings ==
        Files{"left out because the index gives the tensor to another file: 'x' in " +
              (directory / "a.safetensors") + ", 'y' in " + (directory / "b.safetensors") +
              ", 'x' in " + (directory / "c.safetensors")});
  CHECK(failure<FormatError>([&] {
          open({directory / "a.safetensors", directory / "b.safetensors"});
        }).code == static_cast<int>(FormatErrc::duplicate_tensor));
}

TEST_CASE("copies of which the index names none are an error", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x", "y"}));
  directory.write("b.safetensors", byte_tensors({"x", "z"}));
  directory.write("c.safetensors", byte_tensors({"w"}));
  const std::string others = R"("y":"a.safetensors","z":"b.safetensors","w":"c.safetensors")";
  const auto mismatches = [&](const std::string& more) {
    directory.write(usual_index, index_of(others + more));
    Checkpoint checkpoint = open_checkpoint(directory.path().string());
    CHECK(checkpoint.catalog.tensors().size() == 4);
    REQUIRE(checkpoint.index_mismatches.size() == 1);
    CHECK(checkpoint.index_mismatches.front().tensor == "x");
    return checkpoint.index_mismatches.front().cause;
  };
  CHECK(mismatches("").find("does not name it") != std::string::npos);
  CHECK(mismatches(R"(,"x":"c.safetensors")").ends_with("is in " + (directory / "a.safetensors")));
}

TEST_CASE("tensors on which index and headers disagree can be skipped", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x", "extra"}));
  directory.write(usual_index, index_of(R"("x":"a.safetensors","ghost.0":"a.safetensors")"));
  const Checkpoint checkpoint = open_checkpoint(directory.path().string());
  Options options;
  const auto compose =
      GENERATE("", R"({"tp_plan": {}, "compose": [{"pad": "x", "dim": 0, "multiple": 4}]})");
  const TpPlan rules =
      *compose == 0 ? TpPlan::replicate_all() : TpPlan::from_json(compose, "{}", "rules");
  const auto select = [&] { return select_targets(checkpoint, rules, options, 1); };
  const auto refused = [&] { return failure<FormatError>(select).tensor; };
  CHECK(refused() == "ghost.0");
  options.selection.skip = {"ghost.*"};
  CHECK(refused() == "extra");
  options.selection.skip = {"ghost.*", "e*"};
  const std::vector<Target> targets = select();
  REQUIRE(targets.size() == 2);
  CHECK(targets[1].placement.kind == Placement::Kind::dropped);
  options.selection.skip.push_back("none");
  CHECK_THROWS_AS(select(), ConfigError);
}

TEST_CASE("metadata of a file may give its tensors more names", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const auto file = [](const std::string& metadata, const std::string& name) {
    return testing::raw_file(R"({"__metadata__":{)" + metadata + R"(},")" + name +
                                 R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                             1);
  };
  directory.write("a.safetensors",
                  file(R"("z":"x","format":"pt","x":"x","y":"x","p":"y","q":"none")", "x"));
  directory.write("b.safetensors", file(R"("z":"y","s":"x")", "y"));
  const std::string path = directory.path().string();
  const std::vector<Alias> expected{{"z", "x"}};
  CHECK(open_checkpoint(path).aliases == expected);
  directory.write(usual_index, index_of(R"("x":"a.safetensors","y":"b.safetensors",)"
                                        R"("z":"a.safetensors")"));
  CHECK(open_checkpoint(path).aliases == expected);
  CHECK(open_checkpoint(path).index_mismatches.empty());
  fs::rename(directory / "a.safetensors", directory / "model-rank-0-part-0.safetensors");
  CHECK(open_checkpoint(directory / "model-rank-0-part-0.safetensors").aliases.empty());
}

TEST_CASE("an index that is not valid is refused", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("a.safetensors", byte_tensors({"x"}));
  const std::string good = index_of(R"("x":"a.safetensors")");
  const std::vector<std::string> malformed{
      "",
      good.substr(0, good.size() / 2),
      "<<<<<<< HEAD\n" + good,
      good + "}",
      good + std::string(1, '\0'),
      "[]",
      "7",
      "{}",
      R"({"weight_map":null})",
      R"({"weight_map":["a.safetensors"]})",
      R"({"metadata":{"weight_map":{"x":"a.safetensors"}}})",
      index_of(R"("x":1)"),
      index_of(R"("x":null)"),
      index_of(R"("x":["a.safetensors"])"),
      index_of(R"("x":{"file":"a.safetensors"})"),
      index_of(R"("x":"")"),
      index_of(R"("x":".")"),
      index_of(R"("x":"sub/")"),
      index_of(R"("x":"..")"),
      index_of(R"("x":"../a.safetensors")"),
      index_of(R"("x":"sub/../../a.safetensors")"),
      index_of(R"("x":"/etc/passwd")"),
      index_of("\"x\":\"a.safetensors\\u0000.txt\""),
      std::string(1'000'000, '['),
  };
  for (const std::string& text : malformed) {
    CAPTURE(text.substr(0, 200));
    CHECK(is(index_error(directory, text), FormatErrc::header_bad_json));
  }
  const std::string twice = R"("x":"a.safetensors","x":"a.safetensors")";
  CHECK(is(index_error(directory, index_of(twice)), FormatErrc::duplicate_key));
  CHECK(is(index_error(directory, R"({"weight_map":{},"weight_map":{}})"),
           FormatErrc::duplicate_key));
}

TEST_CASE("a defect of an index is shown by line and column", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const auto cause = [&](const std::string& text) { return index_error(directory, text).cause; };
  CHECK(cause("{\n  \"weight_map\": {\n    \"x\": \"a\",\n  }\n}") ==
        "line 4, column 3: not valid JSON: unexpected '}'; expected string literal");
  CHECK(cause("{\n  \"weight_map\": {\"x\": 1}}").starts_with("line 2, column 24: "));
  CHECK(cause("{\n  \"weight_map\"").starts_with("line 2, column 15: the JSON text ends early"));
}

TEST_CASE("what was stored in place of a file is named, with what to do", "[format][checkpoint]") {
  struct Row {
    std::string content;
    const char* cause;
  };
  const auto row =
      GENERATE(Row{"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
                   "this is a Git LFS pointer, not the actual file; run 'git lfs pull'"},
               Row{"\n <!DOCTYPE html>\n<html>",
                   "this is an HTML page, saved in place of the file; download"},
               Row{"<HTML lang=en>", "this is an HTML page"},
               Row{"{ \"error\": \"Repository not found\"}",
                   "this is a server's error message, saved in place of the file: '{ \"error\": "
                   "\"Repository not "
                   "found\"}'; download it again"},
               Row{std::string("PK\x03\x04\0\0\x08\x08", 8) + "archive/data.pkl",
                   "this looks like a PyTorch file; convert"},
               Row{std::string("GGUF\x03\0\0\0\0", 9), "this is a GGUF file; convert"});
  const TemporaryDirectory directory;
  const std::string file = directory.write("a.safetensors", row.content);
  const ErrorRecord header = failure<FormatError>([&] { read_header(file); });
  CHECK(header.file == file);
  CHECK(header.cause.starts_with(row.cause));
  CHECK(index_error(directory, row.content).cause.starts_with(row.cause));
}

TEST_CASE("a text in place of a file is quoted", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const auto cause = [&](const std::string& content) {
    const std::string file = directory.write("a.safetensors", content);
    return failure<FormatError>([&] { read_header(file); }).cause;
  };
  CHECK(cause("Entry not found\n")
            .starts_with("this is a text file, not safetensors: 'Entry not found'"));
  CHECK(cause("Hi").starts_with("this is a text file, not safetensors: 'Hi'"));
  CHECK(cause("").starts_with("the file has 0 bytes"));
  CHECK(cause(std::string(20, '\xff')).starts_with("the header length of 18446744073709551615"));
  CHECK(cause(testing::header_length(99)).starts_with("the header length of 99 bytes reaches"));
}

TEST_CASE("a directory without safetensors files is refused", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("model.gguf", "x");
  directory.write("config.json", "{}");
  const ErrorRecord record = io_error(directory.path().string());
  CHECK(record.file == directory.path().string());
  CHECK(record.cause == "no .safetensors file in the directory; other formats must be converted");
}

TEST_CASE("a Hugging Face cache stands for its main revision", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string model = "models--org--name";
  const auto given = GENERATE(as<std::string>{}, "models--org--name", "models--org--name/",
                              "models--org--name/snapshots", "models--org--name/snapshots/");
  directory.write(model + "/snapshots/aaaa/x.safetensors", byte_tensors({"x"}));
  directory.write(model + "/blobs/0", "");
  const auto found = [&] { return discover({directory / given}).files; };
  const auto file = [&](const std::string& revision) {
    return Files{directory / (model + "/snapshots/" + revision + "/x.safetensors")};
  };
  CHECK(found() == file("aaaa"));  // the only one
  directory.write(model + "/refs/main", "bbbb");
  CHECK(found() == file("aaaa"));
  directory.write(model + "/snapshots/bbbb/x.safetensors", byte_tensors({"x"}));
  CHECK(found() == file("bbbb"));
  directory.write(model + "/refs/main", "aaaa\n");
  CHECK(found() == file("aaaa"));

  for (const char* useless : {"cccc", "", "..", "../snapshots/aaaa"}) {
    directory.write(model + "/refs/main", useless);
    const ErrorRecord record = io_error(directory / given);
    CHECK(record.file == directory / (model + "/snapshots"));
    CHECK(record.cause.ends_with(
        "and refs/main selects none of them; pass the directory of one: aaaa, bbbb"));
  }
}

TEST_CASE("a Hugging Face cache without a checkpoint is an error", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  directory.write("models--a--b/snapshots/aaaa/pytorch_model.bin", "x");
  const ErrorRecord record = io_error(directory / "models--a--b");
  CHECK(record.file == directory / "models--a--b/snapshots/aaaa");
  CHECK(record.cause.starts_with("no .safetensors file in the directory"));
  fs::remove_all(directory / "models--a--b/snapshots/aaaa");
  CHECK(io_error(directory / "models--a--b").cause ==
        "the Hugging Face cache has no revision of this model");
  directory.write("models--c--d/refs/main", "x");
  CHECK(io_error(directory.path().string()).cause ==
        "this is a Hugging Face cache; pass the directory of a model in it: models--a--b, "
        "models--c--d");
  // Not a cache, but a directory that is called like a part of one.
  directory.write("other/snapshots/a.safetensors", byte_tensors({"x"}));
  CHECK(discover({directory / "other/snapshots"}).files.size() == 1);
}

namespace {

/// Files that count what is asked of them.
class CountedFiles final : public testing::WrappedFiles {
 public:
  std::string canonical(const std::string& path) const override {
    ++resolved;
    return WrappedFiles::canonical(path);
  }

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<Counted>(*this, files_.open(path, access));
  }

  mutable int resolved = 0;
  mutable int reads = 0;

 private:
  class Counted final : public source::Handle {
   public:
    Counted(const CountedFiles& files, std::unique_ptr<source::Handle> file)
        : files_(files), file_(std::move(file)) {}
    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      ++files_.reads;
      return file_->read_some(offset, to);
    }

   private:
    const CountedFiles& files_;
    const std::unique_ptr<source::Handle> file_;
  };
};

}  // namespace

TEST_CASE("paths are resolved only if they may name the same file", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const CountedFiles files;
  for (const char* name : {"a", "b", "c"}) {
    directory.write(std::string(name) + ".safetensors", byte_tensors({name}));
  }
  const std::string all = directory.path().string();
  CHECK(source::discover(files, {all}).files.size() == 3);
  CHECK(files.resolved == 0);
  fs::create_hard_link(directory / "a.safetensors", directory / "d.safetensors");
  CHECK(source::discover(files, {all}).files.size() == 4);
  CHECK(files.resolved == 2);
  fs::create_symlink("a.safetensors", directory / "e.safetensors");
  CHECK_THROWS_AS(source::discover(files, {all}), IoError);
}

TEST_CASE("a short header is read at once, a long one at twice", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::size_t bytes = GENERATE(10U, 4087U, 4088U, 4089U, 100'000U);
  const CountedFiles files;
  const std::string json = "{}" + std::string(bytes - 2, ' ');
  const std::string path = directory.write("a", testing::raw_file(json, 5000));
  CHECK(source::read_header(files, path).json == json);
  CHECK(files.reads == (bytes <= 4088 ? 1 : 2));
  const std::string short_path = directory.write("b", testing::raw_file(json, 0));
  CHECK(source::read_header(files, short_path).json == json);
}

TEST_CASE("reading a header stops at the header", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x", testing::raw_file("{}", 0));
  fs::resize_file(path, std::uint64_t{1} << 40);
  const format::RawHeader header = read_header(path);
  CHECK(header.json == "{}");
  CHECK(header.file_size == std::uint64_t{1} << 40);
}

TEST_CASE("reading a header refuses files that cannot have one", "[format][checkpoint]") {
  const TemporaryDirectory directory;
  const auto code_of = [&](const std::string& content) {
    const std::string path = directory.write("x", content);
    const ErrorRecord record = failure<FormatError>([&] { read_header(path); });
    CHECK(record.file == path);
    return static_cast<FormatErrc>(record.code);
  };
  CHECK(code_of("") == FormatErrc::file_too_short);
  CHECK(code_of("1234567") == FormatErrc::file_too_short);
  CHECK(code_of(testing::header_length(0)) == FormatErrc::header_empty);
  CHECK(code_of(testing::header_length(1) + "") == FormatErrc::header_past_end);
  CHECK(code_of("version https://git-lfs.github.com/spec/v1") == FormatErrc::header_too_large);
}

TEST_CASE("a header arrives at other ranks as it was sent, but for the inode", "[checkpoint]") {
  format::FileHeader sent{.file_size = 1'000'000'000'000,
                          .data_start = 300,
                          .modified_ns = -5,
                          .inode = 7,
                          .cached_share = 0.25,
                          .tensors = {},
                          .metadata = {{"format", "pt"}, {"", ""}},
                          .shard_record = "{}",
                          .aliases = {{"alias", 1}, {"", 0}}};
  const std::vector<Shape> shapes{{}, {0, 127}, {128, 1, 1}, {std::uint64_t{1} << 33}, {3, 0}};
  std::uint64_t offset = sent.data_start;
  for (const Shape& shape : shapes) {
    TensorInfo tensor;
    tensor.name = std::string(70 * sent.tensors.size(), 'n');
    tensor.dtype = sent.tensors.size() % 2 == 0 ? DType::U64 : DType::F4;
    tensor.shape = shape;
    tensor.bytes = core::tensor_bytes(shape, tensor.dtype);
    tensor.file_offset = offset;
    offset += tensor.bytes;
    sent.tensors.push_back(tensor);
  }
  core::WireWriter out;
  format::encode(sent, out);
  format::encode({}, out);
  const std::string bytes = out.take();
  core::WireReader in(bytes);
  const format::FileHeader received = format::decode_file_header(in);
  CHECK(received.file_size == sent.file_size);
  CHECK(received.data_start == sent.data_start);
  CHECK(received.modified_ns == sent.modified_ns);
  CHECK(received.inode == 0);
  CHECK(received.cached_share == sent.cached_share);
  CHECK(received.metadata == sent.metadata);
  CHECK(received.shard_record == sent.shard_record);
  CHECK(received.aliases == sent.aliases);
  REQUIRE(received.tensors.size() == sent.tensors.size());
  for (std::size_t i = 0; i < sent.tensors.size(); ++i) {
    CHECK(received.tensors[i].name == sent.tensors[i].name);
    CHECK(received.tensors[i].dtype == sent.tensors[i].dtype);
    CHECK(received.tensors[i].shape == sent.tensors[i].shape);
    CHECK(received.tensors[i].file_offset == sent.tensors[i].file_offset);
    CHECK(received.tensors[i].bytes == sent.tensors[i].bytes);
  }
  CHECK(format::decode_file_header(in).tensors.empty());
  CHECK(in.at_end());
  for (std::size_t length = 0; length + 1 < bytes.size(); length += 7) {
    core::WireReader cut(std::string_view(bytes).substr(0, length));
    CHECK_THROWS_AS((format::decode_file_header(cut), format::decode_file_header(cut)),
                    TransportError);
  }
}

TEST_CASE("numbers take as many bytes as they need", "[wire]") {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  const std::vector<std::pair<std::uint64_t, std::size_t>> numbers{
      {0, 1}, {127, 1}, {128, 2}, {16'383, 2}, {16'384, 3}, {most, 10}};
  for (const auto& [number, size] : numbers) {
    const std::string bytes = core::WireWriter().put(number).take();
    CHECK(bytes.size() == size);
    CHECK(core::WireReader(bytes).number() == number);
  }
  CHECK_THROWS_AS(core::WireReader("\x80").number(), TransportError);
  CHECK_THROWS_AS(core::WireReader(std::string(11, '\x80')).number(), TransportError);
}
