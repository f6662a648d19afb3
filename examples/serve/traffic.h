// Requests over time and a server's loop: prompts go first, then every sequence that is under way gets its next token.
#pragma once
#include <functional>
#include <vector>

#include "model.h"

namespace serve {

struct Traffic {
  int requests = 40;
  double per_second = 20;
  int64_t least_prompt = 8, most_prompt = 200, least_tokens = 8, most_tokens = 48;
  unsigned seed = 1;
};

// Milliseconds.
struct Spread {
  double p50 = 0, p99 = 0, worst = 0;
};
struct Served {
  Spread request, first_token;     // from a request's arrival to its last and its first token
  Spread prompt_step, token_step;  // of the server's loop
  double tokens_per_second = 0;    // over the whole run
  double seconds = 0;
};

// `between` is called between two steps.
Served serve(Model& model, const Shape& shape, const Traffic& traffic, const std::function<void()>& between);

}  // namespace serve
