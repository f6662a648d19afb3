#include "cache/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace kachel::cache {
namespace {

static_assert(std::endian::native == std::endian::little, "canonical bytes are little-endian");

constexpr uint32_t kKeyMagic = 0x79654b4b;  // "KKey"
constexpr uint8_t kKeyVersion = 1;

template <class T>
T raw(std::string_view value) {
  T result;
  std::memcpy(&result, value.data(), sizeof(T));
  return result;
}

std::string show(const KeyField& field) {
  switch (field.type) {
    case FieldType::kText:
      if (field.value.size() <= 64 &&
          std::all_of(field.value.begin(), field.value.end(), [](char c) { return c >= 0x20 && c < 0x7f; }))
        return fmt::format("\"{}\"", field.value);
      return fmt::format("<{} bytes of text>", field.value.size());
    case FieldType::kBytes:
      return fmt::format("<{} bytes>", field.value.size());
    case FieldType::kU64:
      return std::to_string(raw<uint64_t>(field.value));
    case FieldType::kI64:
      return std::to_string(raw<int64_t>(field.value));
    case FieldType::kBool:
      return field.value[0] ? "true" : "false";
    case FieldType::kF64:
      return fmt::format("{}", raw<double>(field.value));
    case FieldType::kU64s: {
      std::string list;
      for (size_t at = 0; at < field.value.size(); at += 8)
        list += fmt::format("{}{}", at ? "," : "", raw<uint64_t>(field.value.substr(at)));
      return "[" + list + "]";
    }
  }
  return "?";
}

}  // namespace

std::string kind_name(Kind kind) {
  switch (kind) {
    case Kind::kPlan:
      return "plan";
    case Kind::kTuning:
      return "tuning";
    case Kind::kSample:
      return "sample";
    case Kind::kProgram:
      return "program";
  }
  return fmt::format("kind {}", static_cast<int>(kind));
}

std::string Key::hex() const {
  return to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

KeyBuilder::KeyBuilder(Kind kind) : kind_(kind) {
  writer_.put<uint32_t>(kKeyMagic);
  writer_.put<uint8_t>(kKeyVersion);
  writer_.put<uint8_t>(static_cast<uint8_t>(kind));
}

void KeyBuilder::begin(FieldType type, std::string_view name) {
  writer_.put<uint8_t>(static_cast<uint8_t>(type));
  writer_.put_bytes(name);
}

KeyBuilder& KeyBuilder::text(std::string_view name, std::string_view value) {
  begin(FieldType::kText, name);
  writer_.put_bytes(value);
  return *this;
}
KeyBuilder& KeyBuilder::bytes(std::string_view name, std::string_view value) {
  begin(FieldType::kBytes, name);
  writer_.put_bytes(value);
  return *this;
}
KeyBuilder& KeyBuilder::u64(std::string_view name, uint64_t value) {
  begin(FieldType::kU64, name);
  writer_.put<uint64_t>(value);
  return *this;
}
KeyBuilder& KeyBuilder::i64(std::string_view name, int64_t value) {
  begin(FieldType::kI64, name);
  writer_.put<int64_t>(value);
  return *this;
}
KeyBuilder& KeyBuilder::boolean(std::string_view name, bool value) {
  begin(FieldType::kBool, name);
  writer_.put<uint8_t>(value ? 1 : 0);
  return *this;
}
KeyBuilder& KeyBuilder::f64(std::string_view name, double value) {
  begin(FieldType::kF64, name);
  writer_.put<double>(value);
  return *this;
}
KeyBuilder& KeyBuilder::u64s(std::string_view name, std::span<const uint64_t> values) {
  begin(FieldType::kU64s, name);
  writer_.put<uint64_t>(values.size());
  for (uint64_t value : values) writer_.put<uint64_t>(value);
  return *this;
}

Key KeyBuilder::finish() const {
  return {kind_, digest_of(writer_.bytes()), writer_.bytes()};
}

Result<ParsedKey> parse_key(std::string_view bytes) {
  ByteReader reader(bytes);
  bool magic = reader.get<uint32_t>() == kKeyMagic && reader.get<uint8_t>() == kKeyVersion;
  ParsedKey key{static_cast<Kind>(reader.get<uint8_t>()), {}};
  if (!reader.ok() || !magic) return invalid("not the canonical bytes of a key");
  size_t at = 6;
  while (!reader.at_end()) {
    KeyField field;
    field.type = static_cast<FieldType>(reader.get<uint8_t>());
    field.name = reader.get_bytes();
    at += 9 + field.name.size();
    size_t size = 8;
    switch (field.type) {
      case FieldType::kText:
      case FieldType::kBytes:
        field.value = reader.get_bytes();
        size = field.value.size();
        at += 8;
        break;
      case FieldType::kBool:
        reader.get<uint8_t>();
        size = 1;
        break;
      case FieldType::kU64:
      case FieldType::kI64:
      case FieldType::kF64:
        reader.get<uint64_t>();
        break;
      case FieldType::kU64s: {
        uint64_t count = reader.get_count(8);
        for (uint64_t i = 0; i < count; ++i) reader.get<uint64_t>();
        size = count * 8;
        at += 8;
        break;
      }
      default:
        return invalid(fmt::format("unknown type of field at byte {} of a key", at));
    }
    if (!reader.ok()) return invalid("a key that ends in the middle of a field");
    field.value = bytes.substr(at, size);
    at += size;
    key.fields.push_back(field);
  }
  return key;
}

std::string describe_key(std::string_view bytes) {
  auto key = parse_key(bytes);
  if (!key.ok()) return fmt::format("<{}>", key.status().message());
  std::string line = kind_name(key->kind);
  for (const KeyField& field : key->fields) line += fmt::format(" {}={}", field.name, show(field));
  return line;
}

}  // namespace kachel::cache
