// format: header bytes → metadata; one case per defect.
#include "format/header.hpp"

#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/safetensors_file.hpp"

using namespace safeshuffle;
using format::Header;
using format::parse_header;
using format::parse_header_length;
using testing::failure;

namespace {

const std::string file_name = "m.safetensors";

Header parse(const std::string& json, std::uint64_t payload = 0) {
  return parse_header(json, format::prefix_bytes + json.size() + payload, file_name);
}

ErrorRecord defect(const std::string& json, std::uint64_t payload = 0) {
  return failure<FormatError>([&] { parse(json, payload); });
}

bool is_defect(const ErrorRecord& record, FormatErrc code) {
  return record.kind == ErrorKind::format && record.code == static_cast<int>(code) &&
         record.file == file_name && record.offset.has_value();
}

ErrorRecord length_defect(const std::string& prefix, std::uint64_t file_size) {
  return failure<FormatError>([&] { parse_header_length(prefix, file_size, file_name); });
}

/// A header with one tensor "a", whose shape, offsets and dtype are given as JSON.
std::string one(const std::string& shape, const std::string& offsets,
                const std::string& dtype = R"("U8")") {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

/// An entry of `end - begin` U8 elements.
std::string entry(const std::string& name, std::uint64_t begin, std::uint64_t end) {
  return R"(")" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
         R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

/// A JSON object of these members.
std::string object(const std::vector<std::string>& members) {
  std::string json;
  for (const std::string& member : members) json.append(json.empty() ? "{" : ",").append(member);
  return json.append("}");
}

struct Malformed {
  FormatErrc code;
  std::string json;
};

}  // namespace

TEST_CASE("a header length is checked before anything is read", "[format][header]") {
  CHECK(parse_header_length(testing::header_length(2), 10, file_name) == 2);
  CHECK(parse_header_length(testing::header_length(100'000'000), 100'000'008, file_name) ==
        100'000'000);
  CHECK(is_defect(length_defect("", 0), FormatErrc::file_too_short));
  CHECK(is_defect(length_defect("1234567", 7), FormatErrc::file_too_short));
  CHECK(is_defect(length_defect(testing::header_length(0), 8), FormatErrc::header_empty));
  CHECK(is_defect(length_defect(testing::header_length(100'000'001), std::uint64_t{1} << 40),
                  FormatErrc::header_too_large));
  CHECK(is_defect(length_defect(testing::header_length(std::uint64_t{1} << 63), 8),
                  FormatErrc::header_too_large));
  CHECK(is_defect(length_defect(std::string(8, '\xff'), 8), FormatErrc::header_too_large));
  CHECK(is_defect(length_defect(testing::header_length(3), 10), FormatErrc::header_past_end));
}

TEST_CASE("a header that does not fit its file is refused without the prefix too",
          "[format][header]") {
  const auto of_size = [](std::uint64_t size) {
    return failure<FormatError>([&] { parse_header("{}", size, file_name); });
  };
  CHECK(is_defect(of_size(7), FormatErrc::file_too_short));
  CHECK(is_defect(of_size(9), FormatErrc::header_past_end));
  CHECK(is_defect(defect(""), FormatErrc::header_empty));
}

TEST_CASE("tensors come out in order of their data, with offsets in the file", "[format][header]") {
  const std::string json = R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                           R"("a":{"shape":[],"data_offsets":[0,4],"dtype":"F32"}})";
  const Header header = parse(json, 12 + 4);
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.data_start == 8 + json.size());
  CHECK(header.tensors[0].name == "a");
  CHECK(header.tensors[0].dtype == DType::F32);
  CHECK(header.tensors[0].shape.empty());
  CHECK(header.tensors[0].bytes == 4);
  CHECK(header.tensors[0].file_offset == header.data_start);
  CHECK(header.tensors[1].name == "b");
  CHECK(header.tensors[1].shape == Shape{2, 3});
  CHECK(header.tensors[1].file_offset == header.data_start + 4);
}

TEST_CASE("headers without data are fine", "[format][header]") {
  CHECK(parse("{}").tensors.empty());
  CHECK(parse("{}   ").data_start == 13);
  CHECK(parse("{ }\n\t\r ").tensors.empty());
  CHECK(parse(R"({"__metadata__":null})").metadata.empty());
  CHECK(parse(R"({"__metadata__":{}})").metadata.empty());
}

TEST_CASE("metadata is kept", "[format][header]") {
  const Header header = parse(R"({"__metadata__":{"format":"pt","\u00e9\n":""}})");
  CHECK(header.metadata ==
        std::map<std::string, std::string>{{"format", "pt"}, {"\xc3\xa9\n", ""}});
}

TEST_CASE("empty tensors share an offset with what follows them", "[format][header]") {
  const std::string json =
      object({entry("z", 0, 0), entry("m", 0, 3), entry("b", 3, 3), entry("a", 3, 3)});
  const Header header = parse(json, 3);
  std::string names;
  for (const TensorInfo& tensor : header.tensors) names += tensor.name;
  CHECK(names == "zmab");
  CHECK(parse(one("[0,18446744073709551615,2]", "[0,0]")).tensors.at(0).bytes == 0);
}

TEST_CASE("every dtype is sized by its bits", "[format][header]") {
  for (int i = 0; i <= static_cast<int>(DType::U64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string end = std::to_string(bits(dtype));
    const std::string json = one("[2,4]", "[0," + end + "]", '"' + std::string(name(dtype)) + '"');
    CHECK(parse(json, bits(dtype)).tensors.at(0).dtype == dtype);
  }
}

TEST_CASE("each defect of a header has its own code", "[format][header]") {
  const std::string big = std::to_string(std::uint64_t{1} << 63);
  const std::vector<Malformed> all{
      {FormatErrc::header_bad_start, " {}"},
      {FormatErrc::header_bad_start, "[]"},
      {FormatErrc::header_bad_start, "\xef\xbb\xbf{}"},
      {FormatErrc::header_bad_start, std::string(1'000'000, '[')},
      {FormatErrc::header_not_utf8, "{\"\xff\":1}"},
      {FormatErrc::header_not_utf8, "{\"\x80\":1}"},
      {FormatErrc::header_not_utf8, "{\"\xc0\xaf\":1}"},
      {FormatErrc::header_not_utf8, "{\"\xed\xa0\x80\":1}"},
      {FormatErrc::header_not_utf8, "{\"\xf4\x90\x80\x80\":1}"},
      {FormatErrc::header_not_utf8, "{\"\xe2\x82\":1}"},
      {FormatErrc::header_bad_json, "{}\x80"},
      {FormatErrc::header_bad_json, "{"},
      {FormatErrc::header_bad_json, "{{"},
      {FormatErrc::header_bad_json, "{\"a\":"},
      {FormatErrc::header_bad_json, "{}}"},
      {FormatErrc::header_bad_json, "{} {}"},
      {FormatErrc::header_bad_json, std::string("{}\0", 3)},
      {FormatErrc::header_bad_json, std::string("{}\0  ", 5)},
      {FormatErrc::header_bad_json, "{}\v"},
      {FormatErrc::header_bad_json, "{/**/}"},
      {FormatErrc::header_bad_json, object({entry("a", 0, 0), ""})},
      {FormatErrc::header_bad_json, R"({"\ud800":null})"},
      {FormatErrc::header_bad_json, "{\"a\nb\":null}"},
      {FormatErrc::nesting_too_deep, one("[[", "[0,0]")},
      {FormatErrc::nesting_too_deep, R"({"a":{"shape":)" + std::string(10'000'000, '[')},
      {FormatErrc::duplicate_key, object({entry("a", 0, 0), entry("a", 0, 0)})},
      {FormatErrc::duplicate_key, object({entry("a", 0, 0), entry("\\u0061", 0, 0)})},
      {FormatErrc::duplicate_key, R"({"a":{"dtype":"U8","dtype":"U8"}})"},
      {FormatErrc::duplicate_key, R"({"__metadata__":{},"__metadata__":{}})"},
      {FormatErrc::duplicate_key, R"({"__metadata__":{"k":"1","k":"1"}})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":"text"})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":["a"]})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":{"k":1}})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":{"k":null}})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":{"k":{}}})"},
      {FormatErrc::metadata_not_strings, R"({"__metadata__":{"k":["a"]}})"},
      {FormatErrc::entry_not_object, R"({"a":null})"},
      {FormatErrc::entry_not_object, R"({"a":["U8",[0],[0,0]]})"},
      {FormatErrc::entry_not_object, R"({"a":7})"},
      {FormatErrc::entry_not_object, R"({"a":"U8"})"},
      {FormatErrc::entry_not_object, R"({"a":true})"},
      {FormatErrc::unknown_field, R"({"a":{"dtype":"U8","stride":[1]}})"},
      {FormatErrc::unknown_field, R"({"a":{"":{}}})"},
      {FormatErrc::missing_field, R"({"a":{}})"},
      {FormatErrc::missing_field, R"({"a":{"shape":[0],"data_offsets":[0,0]}})"},
      {FormatErrc::missing_field, R"({"a":{"dtype":"U8","data_offsets":[0,0]}})"},
      {FormatErrc::missing_field, R"({"a":{"dtype":"U8","shape":[0]}})"},
      {FormatErrc::unknown_dtype, one("[0]", "[0,0]", R"("U128")")},
      {FormatErrc::unknown_dtype, one("[0]", "[0,0]", R"("u8")")},
      {FormatErrc::unknown_dtype, one("[0]", "[0,0]", "3")},
      {FormatErrc::unknown_dtype, one("[0]", "[0,0]", R"({"U8":null})")},
      {FormatErrc::unknown_dtype, one("[0]", "[0,0]", "[]")},
      {FormatErrc::bad_shape, one("null", "[0,0]")},
      {FormatErrc::bad_shape, one("0", "[0,0]")},
      {FormatErrc::bad_shape, one("{}", "[0,0]")},
      {FormatErrc::bad_shape, one("[-1]", "[0,0]")},
      {FormatErrc::bad_shape, one("[-0]", "[0,0]")},
      {FormatErrc::bad_shape, one("[1.0]", "[0,1]")},
      {FormatErrc::bad_shape, one("[1e0]", "[0,1]")},
      {FormatErrc::bad_shape, one("[18446744073709551616]", "[0,0]")},
      {FormatErrc::bad_shape, one("[1e999]", "[0,0]")},
      {FormatErrc::bad_shape, one("[\"1\"]", "[0,1]")},
      {FormatErrc::bad_shape, one("[{}]", "[0,1]")},
      {FormatErrc::shape_overflow, one("[" + big + ",2]", "[0,0]")},
      {FormatErrc::shape_overflow, one("[" + big + ",2,0]", "[0,0]")},
      {FormatErrc::shape_overflow, one("[" + big + "]", "[0,0]")},
      {FormatErrc::not_byte_sized, one("[3]", "[0,2]", R"("F4")")},
      {FormatErrc::not_byte_sized, one("[2]", "[0,2]", R"("F6_E2M3")")},
      {FormatErrc::bad_offsets, one("[0]", "[]")},
      {FormatErrc::bad_offsets, one("[0]", "[0]")},
      {FormatErrc::bad_offsets, one("[0]", "[0,0,0]")},
      {FormatErrc::bad_offsets, one("[0]", "[0,-1]")},
      {FormatErrc::bad_offsets, one("[0]", "[0,0.0]")},
      {FormatErrc::bad_offsets, one("[0]", "[0,18446744073709551616]")},
      {FormatErrc::bad_offsets, one("[0]", "\"0\"")},
      {FormatErrc::offsets_reversed, one("[0]", "[1,0]")},
      {FormatErrc::offsets_reversed, one("[0]", "[18446744073709551615,0]")},
      {FormatErrc::size_mismatch, one("[1]", "[0,2]")},
      {FormatErrc::size_mismatch, one("[0]", "[0,1]")},
      {FormatErrc::size_mismatch, one("[]", "[0,0]")},
      {FormatErrc::gap_or_overlap, one("[1]", "[1,2]")},
      {FormatErrc::gap_or_overlap, object({entry("a", 0, 2), entry("b", 1, 3)})},
      {FormatErrc::gap_or_overlap, object({entry("a", 0, 2), entry("b", 3, 4)})},
      {FormatErrc::gap_or_overlap, object({entry("a", 0, 2), entry("b", 0, 2)})},
      {FormatErrc::gap_or_overlap, object({entry("a", 0, 2), entry("b", 1, 1)})},
      {FormatErrc::payload_truncated, one("[5]", "[0,5]")},
      {FormatErrc::payload_truncated, one("[2305843009213693951]", "[0,2305843009213693951]")},
  };
  for (const Malformed& malformed : all) {
    CAPTURE(malformed.json.substr(0, 200));
    const ErrorRecord record = defect(malformed.json, 4);
    CHECK(record.code == static_cast<int>(malformed.code));
    CHECK(is_defect(record, malformed.code));
  }
  CHECK(is_defect(defect(one("[3]", "[0,3]"), 4), FormatErrc::trailing_bytes));
  CHECK(is_defect(defect("{}", 1), FormatErrc::trailing_bytes));
}

TEST_CASE("an error names the tensor and points at the bytes", "[format][header]") {
  const auto at = [](const std::string& member, const std::string& mark) {
    const std::string json = object({entry("first", 0, 1), member});
    const ErrorRecord record = defect(json, 1);
    CHECK(record.offset == 8 + json.rfind(mark));
    return record.tensor;
  };
  CHECK(at(R"("w\"\\": {"dtype":"U8"})", R"("w\")") == R"(w"\)");
  CHECK(at(R"("w":{"dtype":"U9"})", R"("U9")") == "w");
  CHECK(at(R"("w":{"size":1})", R"("size")") == "w");
  CHECK(at(R"("w":[])", "[]") == "w");
  CHECK(at(entry("w", 2, 3), R"("w")") == "w");
  CHECK(at(entry("first", 0, 1), R"("first")") == "first");
}
