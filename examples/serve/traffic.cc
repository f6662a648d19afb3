#include "traffic.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <thread>

namespace serve {
namespace {

struct Request {
  double arrives = 0;  // seconds from the start
  int64_t prompt = 0, tokens = 0;
};
struct Sequence {
  const Request* request;
  int32_t slot;
  int32_t length;  // tokens in the caches
  int64_t made = 0;
};

std::vector<Request> requests_of(const Traffic& traffic) {
  std::mt19937 random(traffic.seed);
  std::exponential_distribution<double> gap(traffic.per_second);
  std::uniform_int_distribution<int64_t> prompt(traffic.least_prompt, traffic.most_prompt),
      tokens(traffic.least_tokens, traffic.most_tokens);
  std::vector<Request> requests;
  double at = 0;
  for (int i = 0; i < traffic.requests; ++i) requests.push_back({at += gap(random), prompt(random), tokens(random)});
  return requests;
}

Spread spread_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return 1000 * seconds[std::max<size_t>(rank, 1) - 1];
  };
  return {at(0.5), at(0.99), at(1)};
}

}  // namespace

Served serve(Model& model, const Shape& shape, const Traffic& traffic, const std::function<void()>& between) {
  const std::vector<Request> requests = requests_of(traffic);
  const auto start = std::chrono::steady_clock::now();
  auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<double> request, first_token, prompt_step, token_step;
  std::vector<int32_t> free_slots;
  for (int64_t i = shape.slots; i-- > 0;) free_slots.push_back(static_cast<int32_t>(i));
  std::vector<Sequence> active;
  size_t next = 0;
  int64_t made = 0;
  while (next < requests.size() || !active.empty()) {
    between();
    const double begin = now();
    if (next < requests.size() && requests[next].arrives <= begin && !free_slots.empty()) {
      const Request& prompt = requests[next++];
      model.prefill(free_slots.back(), prompt.prompt);
      prompt_step.push_back(now() - begin);
      first_token.push_back(now() - prompt.arrives);
      active.push_back({&prompt, free_slots.back(), static_cast<int32_t>(prompt.prompt), 1});
      free_slots.pop_back();
      ++made;
    } else if (!active.empty()) {
      std::vector<int32_t> slots, positions;
      for (Sequence& sequence : active) {
        slots.push_back(sequence.slot);
        positions.push_back(sequence.length++);
        ++sequence.made;
      }
      model.decode(slots, positions);
      token_step.push_back(now() - begin);
      made += static_cast<int64_t>(active.size());
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(requests[next].arrives - begin));
    }
    for (size_t i = active.size(); i-- > 0;) {
      if (active[i].made < active[i].request->tokens) continue;
      request.push_back(now() - active[i].request->arrives);
      free_slots.push_back(active[i].slot);
      active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  const double seconds = now();
  return {spread_of(request),
          spread_of(first_token),
          spread_of(prompt_step),
          spread_of(token_step),
          static_cast<double>(made) / seconds,
          seconds};
}

}  // namespace serve
