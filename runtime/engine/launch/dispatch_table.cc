#include "runtime/engine/launch/dispatch_table.h"

namespace kachel::runtime {
namespace {

constexpr size_t kFirstCapacity = 16;

}  // namespace

template <class Target>
typename DispatchTable<Target>::Slots::Owner DispatchTable<Target>::Slots::create(size_t capacity) {
  using Slot = std::atomic<const Entry*>;
  static_assert(sizeof(Slots) % alignof(Slot) == 0);
  void* memory = ::operator new(sizeof(Slots) + capacity * sizeof(Slot), kAlign);
  Owner slots(new (memory) Slots{capacity - 1});
  std::uninitialized_value_construct_n(&(*slots)[0], capacity);
  return slots;
}

template <class Target>
DispatchTable<Target>::DispatchTable() {
  tables_.push_back(Slots::create(kFirstCapacity));
  slots_.store(tables_.back().get(), std::memory_order_release);
}

template <class Target>
DispatchTable<Target>::~DispatchTable() = default;

template <class Target>
void DispatchTable<Target>::insert(Slots& slots, const Entry* entry) {
  size_t at = entry->signature.hash & slots.mask;
  while (slots[at].load(std::memory_order_relaxed)) at = (at + 1) & slots.mask;
  slots[at].store(entry, std::memory_order_release);
}

// One from before, where there is: what is forgotten and found again now and then takes no memory each time.
template <class Target>
auto DispatchTable<Target>::entry_of(const Signature& signature, const Target* target) -> const Entry* {
  for (const auto& entry : entries_)
    if (entry->target == target && entry->signature == signature) return entry.get();
  entries_.push_back(std::make_unique<Entry>(Entry{target, signature}));
  return entries_.back().get();
}

template <class Target>
bool DispatchTable<Target>::publish(const Signature& signature, const Target* target) {
  std::lock_guard lock(mutex_);
  Slots* slots = tables_.back().get();
  for (size_t at = signature.hash & slots->mask;; at = (at + 1) & slots->mask) {
    const Entry* entry = (*slots)[at].load(std::memory_order_relaxed);
    if (!entry) break;
    if (!(entry->signature == signature)) continue;
    if (entry->target == target) return true;
    (*slots)[at].store(entry_of(signature, target), std::memory_order_release);
    return true;
  }
  if (!target) return true;
  if (used_ >= kMaxEntries) return false;
  if ((used_ + 1) * 2 > slots->mask + 1) {
    auto larger = Slots::create((slots->mask + 1) * 2);
    for (size_t at = 0; at <= slots->mask; ++at)
      if (const Entry* entry = (*slots)[at].load(std::memory_order_relaxed)) insert(*larger, entry);
    slots = larger.get();
    tables_.push_back(std::move(larger));
    slots_.store(slots, std::memory_order_release);
  }
  entries_.push_back(std::make_unique<Entry>(Entry{target, signature}));
  insert(*slots, entries_.back().get());
  ++used_;
  return true;
}

template <class Target>
const Target* DispatchTable<Target>::find_weaker(const Signature& signature) const {
  std::lock_guard lock(mutex_);
  const Target* best = nullptr;
  uint64_t best_facts = 0;
  const Slots& slots = *tables_.back();
  for (size_t at = 0; at <= slots.mask; ++at) {
    const Entry* entry = slots[at].load(std::memory_order_relaxed);
    if (!entry || !entry->target || entry->signature.count != signature.count) continue;
    const uint64_t facts = entry->signature.words[kFactsWord];
    if ((facts & ~signature.words[kFactsWord]) != 0) continue;
    bool same = true;
    for (uint32_t i = 0; i < signature.count; ++i)
      same &= i == kFactsWord || entry->signature.words[i] == signature.words[i];
    if (!same) continue;
    // The most facts; among equal counts the larger mask, so that the choice does not depend on the order of entries.
    const auto better = std::pair(__builtin_popcountll(facts), facts);
    if (!best || better > std::pair(__builtin_popcountll(best_facts), best_facts)) {
      best = entry->target;
      best_facts = facts;
    }
  }
  return best;
}

template <class Target>
size_t DispatchTable<Target>::size() const {
  std::lock_guard lock(mutex_);
  return used_;
}

template <class Target>
size_t DispatchTable<Target>::kept() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

template class DispatchTable<Specialisation>;
template class DispatchTable<TunableValues>;

}  // namespace kachel::runtime
