#include "synth/expression.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::synth {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Recursive descent. A division with a remainder does not stop it, so that a malformed rest is
// still noticed.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Values& values) : text_(text), values_(values) {}

  std::optional<std::uint64_t> run() {
    const std::uint64_t value = sum(0);
    if (at_ != text_.size()) fail("unexpected '" + std::string(1, text_[at_]) + "'");
    return exact_ ? std::optional(value) : std::nullopt;
  }

 private:
  static constexpr int max_depth = 32;

  std::uint64_t sum(int depth) {
    std::uint64_t value = product(depth);
    while (accept('+')) value = checked(core::checked_add(value, product(depth)));
    return value;
  }

  std::uint64_t product(int depth) {
    std::uint64_t value = operand(depth);
    for (;;) {
      if (accept('*')) {
        value = checked(core::checked_mul(value, operand(depth)));
      } else if (accept('/')) {
        value = quotient(value, operand(depth));
      } else {
        return value;
      }
    }
  }

  std::uint64_t operand(int depth) {
    if (accept('(')) return parenthesized(depth + 1);
    const std::string_view word = next_word();
    if (word.empty()) fail("a number or a name is missing");
    return is_digit(word.front()) ? number(word) : lookup(word);
  }

  std::uint64_t parenthesized(int depth) {
    if (depth > max_depth) fail("nested too deep");
    const std::uint64_t value = sum(depth);
    if (!accept(')')) fail("')' is missing");
    return value;
  }

  std::uint64_t quotient(std::uint64_t dividend, std::uint64_t divisor) {
    if (divisor == 0) fail("division by zero");
    exact_ = exact_ && dividend % divisor == 0;
    return dividend / divisor;
  }

  std::uint64_t number(std::string_view word) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size()) {
      fail("'" + std::string(word) + "' is not a number");
    }
    return value;
  }

  std::uint64_t lookup(std::string_view word) const {
    const auto found = values_.find(word);
    if (found == values_.end()) fail("'" + std::string(word) + "' is unknown");
    return found->second;
  }

  std::string_view next_word() {
    skip_spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  bool accept(char expected) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != expected) return false;
    ++at_;
    skip_spaces();
    return true;
  }

  void skip_spaces() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }

  std::uint64_t checked(std::optional<std::uint64_t> value) const {
    if (!value) fail("the value overflows 64 bits");
    return *value;
  }

  [[noreturn]] void fail(const std::string& cause) const {
    throw ConfigError("expression '" + std::string(text_) + "': " + cause);
  }

  std::string_view text_;
  const Values& values_;
  std::size_t at_ = 0;
  bool exact_ = true;
};

}  // namespace

std::optional<std::uint64_t> evaluate(std::string_view expression, const Values& values) {
  return Evaluator(expression, values).run();
}

}  // namespace safeshuffle::synth
