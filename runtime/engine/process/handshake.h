// How a host and its worker make sure that they understand each other: each says first which protocol it speaks and
// which build it is of. Equal or nothing, since what they say further on is a private matter of one build.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kachel::runtime {

// Raised with every change of what is said.
inline constexpr uint32_t kWorkerProtocol = 5;

struct Hello {
  uint32_t protocol = kWorkerProtocol;
  std::string build;  // in words
  bool operator==(const Hello&) const = default;
};

// These bytes never change.
std::string encode_hello(const Hello& hello);
std::optional<Hello> decode_hello(std::string_view bytes);

}  // namespace kachel::runtime
