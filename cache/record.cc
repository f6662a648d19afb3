#include "cache/record.h"

#include <fmt/format.h>

#include <cstring>

#include "cache/checksum.h"
#include "support/bytes.h"

namespace kachel::cache {
namespace {

constexpr uint32_t kRecordMagic = 0x6365524b;  // "KRec"
constexpr uint16_t kRecordVersion = 1;
constexpr uint8_t kFlagMac = 1;

Status damaged(std::string why) {
  return {Code::kStore, std::move(why)};
}

}  // namespace

std::string encode(const Key& key, std::string_view payload, uint64_t created_us, const MacKeys* keys) {
  ByteWriter writer;
  writer.put<uint32_t>(kRecordMagic);
  writer.put<uint16_t>(kRecordVersion);
  writer.put<uint8_t>(static_cast<uint8_t>(key.kind));
  writer.put<uint8_t>(keys ? kFlagMac : 0);
  writer.put<uint64_t>(created_us);
  writer.put_bytes(key.bytes);
  writer.put_bytes(payload);
  std::string bytes = writer.take();
  if (keys) {
    const Mac mac = keys->sign(bytes);
    bytes.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  }
  Digest sum = digest_of(bytes);
  bytes.append(reinterpret_cast<const char*>(sum.data()), sum.size());
  return bytes;
}

Result<Record> decode(std::string_view bytes) {
  constexpr size_t kSum = sizeof(Digest);
  if (bytes.size() < kSum) return damaged(fmt::format("{} bytes are too few for a record", bytes.size()));
  std::string_view body = bytes.substr(0, bytes.size() - kSum);
  ByteReader reader(body);
  if (reader.get<uint32_t>() != kRecordMagic) return damaged("no record magic");
  uint16_t version = reader.get<uint16_t>();
  if (version != kRecordVersion) return damaged(fmt::format("record version {}, expected {}", version, kRecordVersion));
  // The checksum comes before any further look: past it, nothing but a foreign writer can explain a surprise.
  Digest sum = digest_of(body);
  if (std::memcmp(sum.data(), bytes.data() + body.size(), kSum) != 0) return damaged("checksum mismatch");
  Record record{};
  record.kind = static_cast<Kind>(reader.get<uint8_t>());
  uint8_t flags = reader.get<uint8_t>();
  record.created_us = reader.get<uint64_t>();
  record.key = reader.get_bytes();
  record.payload = reader.get_bytes();
  if (flags & kFlagMac) {
    record.mac = reader.get_raw(sizeof(Mac));
    record.covered = body.substr(0, body.size() - record.mac.size());
  }
  if (!reader.at_end()) return damaged("lengths that do not add up");
  if ((flags & ~kFlagMac) != 0) return damaged(fmt::format("unknown flags {:#x}", flags));
  return record;
}

bool authentic(const Record& record, const MacKeys& keys) {
  return keys.accepts(record.covered, record.mac);
}

}  // namespace kachel::cache
