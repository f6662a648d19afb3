// Keys: canonical bytes of everything that can change a result, and their digest. See FORMAT.md, "Keys".
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/checksum.h"
#include "support/bytes.h"
#include "support/status.h"

namespace kachel::cache {

// What an entry is. Part of the key's bytes, so equal fields of different kinds never meet. Values are on disk: append
// only.
enum class Kind : uint8_t {
  kPlan = 1,     // a launch plan with its binaries
  kTuning = 2,   // the decision for one tuning key
  kSample = 3,   // the measurement of one configuration
  kProgram = 4,  // what is known of a program before it is specialised
};

// "plan", "tuning", ...; "kind 9" for a kind this library does not know.
std::string kind_name(Kind kind);

struct Key {
  Kind kind;
  Digest digest;      // of `bytes`
  std::string bytes;  // canonical; stored with the entry and compared on every hit

  std::string hex() const;
  friend bool operator==(const Key& a, const Key& b) { return a.digest == b.digest && a.bytes == b.bytes; }
};

enum class FieldType : uint8_t { kText = 1, kBytes, kU64, kI64, kBool, kF64, kU64s };

// Writes fields in the order of the calls. Every field carries its type, its name and, where it varies, its length, so
// no two different sequences of fields give the same bytes. Order matters: callers keep one fixed order per kind.
class KeyBuilder {
 public:
  explicit KeyBuilder(Kind kind);

  KeyBuilder& text(std::string_view name, std::string_view value);
  KeyBuilder& bytes(std::string_view name, std::string_view value);
  KeyBuilder& u64(std::string_view name, uint64_t value);
  KeyBuilder& i64(std::string_view name, int64_t value);
  KeyBuilder& boolean(std::string_view name, bool value);
  KeyBuilder& f64(std::string_view name, double value);  // by its bits: -0.0 and 0.0 differ
  KeyBuilder& u64s(std::string_view name, std::span<const uint64_t> values);

  // May be called at any time; the builder can go on, so that keys with a common prefix share the work.
  Key finish() const;

 private:
  void begin(FieldType type, std::string_view name);
  Kind kind_;
  ByteWriter writer_;
};

// A field read back, for listings. `name` and `value` view the parsed bytes; `value` is the encoded value.
struct KeyField {
  FieldType type;
  std::string_view name, value;
};
struct ParsedKey {
  Kind kind;
  std::vector<KeyField> fields;
};
Result<ParsedKey> parse_key(std::string_view bytes);

// One line for people: `plan body="..." facts=3`; long or unprintable values are shortened to their size.
std::string describe_key(std::string_view bytes);

}  // namespace kachel::cache

template <>
struct std::hash<kachel::cache::Key> {
  size_t operator()(const kachel::cache::Key& key) const {
    size_t value;
    std::memcpy(&value, key.digest.data(), sizeof(value));
    return value;
  }
};
