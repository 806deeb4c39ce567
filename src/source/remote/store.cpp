#include "source/remote/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"
#include "source/remote/client.hpp"

namespace safeshuffle::source {
namespace {

// To those who may not list it, S3 says 403 of what does not exist.
std::int32_t code_of(const HttpResponse& answer) {
  if (!answer.failure.empty()) return EIO;
  switch (answer.status) {
    case 401:
    case 403:
      return EACCES;
    case 404:
    case 410:
      return ENOENT;
    default:
      return EIO;
  }
}

std::string meaning_of(long status) {
  switch (status) {
    case 206:
      return "the answer is shorter than the range";
    case 301:
    case 302:
    case 307:
    case 308:
      return "redirected";
    case 400:
      return "bad request";
    case 401:
      return "not authorised";
    case 403:
      return "forbidden";
    case 404:
    case 410:
      return "not found";
    case 407:
      return "the proxy asks for authorisation";
    case 416:
      return "the object ends before the range";
    case 429:
      return "too many requests";
    case 500:
    case 502:
    case 503:
    case 504:
      return "the server is not available";
    default:
      return {};
  }
}

}  // namespace

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(space) - first + 1));
}

std::string percent_encoded(std::string_view text, std::string_view kept) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string result;
  for (const char c : text) {
    if (plain.find(c) != std::string_view::npos || kept.find(c) != std::string_view::npos) {
      result += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    result += {'%', digits[byte / 16], digits[byte % 16]};
  }
  return result;
}

std::string between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t first = text.find(begin);
  if (first == std::string_view::npos) return {};
  const std::size_t last = text.find(end, first + begin.size());
  if (last == std::string_view::npos) return {};
  return std::string(text.substr(first + begin.size(), last - first - begin.size()));
}

std::string excerpt_of(std::string_view said) {
  constexpr std::size_t longest = 200;
  return core::printable(core::shortened(std::string(said), longest));
}

std::string said_in(const HttpResponse& answer) {
  const std::string code = between(answer.body, "<Code>", "</Code>");
  if (code.empty()) return {};
  const std::string message = between(answer.body, "<Message>", "</Message>");
  return excerpt_of(message.empty() ? code : code + ": " + message);
}

[[noreturn]] void raise_answer(const Store& store, const std::string& path,
                               const HttpResponse& answer, std::optional<std::uint64_t> offset) {
  std::string cause = answer.failure;
  if (cause.empty()) {
    cause = "HTTP " + std::to_string(answer.status);
    for (const std::string& part :
         {meaning_of(answer.status), said_in(answer), store.explain(answer)}) {
      if (!part.empty()) cause += ": " + part;
    }
  }
  throw IoError(ErrorRecord{
      .code = code_of(answer), .file = path, .offset = offset, .cause = std::move(cause)});
}

std::string fetch_text(HttpClient& client, const Store& store, const std::string& path,
                       const std::function<HttpRequest()>& make) {
  HttpResponse answer =
      client.fetch(make, {}, [&](const HttpRequest& made, const HttpResponse& response) {
        return store.renew(path, made, response);
      });
  if (!answer.failure.empty() || answer.status != 200) raise_answer(store, path, answer);
  return std::move(answer.body);
}

}  // namespace safeshuffle::source
