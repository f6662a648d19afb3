// A stack of layers with random weights, on the device that the engine lists first: what a server asks of a model.
#pragma once
#include <map>
#include <random>

#include "graphs.h"
#include "host.h"

namespace serve {

struct Shape {
  int64_t embed = 256, heads = 8, key_heads = 2, head = 32, feed = 512, layers = 2;
  int64_t slots = 8, most = 512;  // sequences at once, tokens of each
};

class Model {
 public:
  // `text`: layer.tile. Borrows the engine. With `graphs`, steps for next tokens on a GPU are captured once for each
  // number of sequences and replayed.
  Model(kachel_engine* engine, kachel_device device, const std::string& text, const Shape& shape, bool graphs);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Runs a prompt of so many tokens through all layers, into the slot.
  void prefill(int32_t slot, int64_t tokens);
  // One token more for each of the sequences: in which slot, and which number it has in it.
  void decode(const std::vector<int32_t>& slots, const std::vector<int32_t>& positions);
  // What the last call has made of its tokens: `tokens` rows of embed floats.
  std::vector<float> output(int64_t tokens);
  // Calls that are bound from now on are bound to what the tunings since have found, and graphs made of those.
  void rebind() { steps_.clear(); }
  int64_t replays() const { return replays_; }  // of graphs, so far

 private:
  // A call for any layer, and all layers' launches of it as a graph where they were captured.
  struct Step {
    Handle<kachel_call> call;
    std::unique_ptr<Graph> graph;
    bool plain = false;  // it cannot be captured
  };
  struct Layer {
    Tensor first, qkv, out, second, gate, up, down, keys, values;
  };
  Tensor random(std::vector<int64_t> extents, float scale);
  void place(const std::vector<int32_t>& slots, const std::vector<int32_t>& positions);
  Handle<kachel_call> bind_decode(int64_t tokens);
  kachel_status launch_layers(const Step& step);
  void wait();

  kachel_engine* engine_;
  kachel_device device_;
  Shape shape_;
  const char* type_;  // f32 on the CPU, bf16 on a GPU
  std::mt19937 random_{1};
  Handle<kachel_module> module_;
  Handle<kachel_kernel> prefill_, decode_;
  std::vector<Layer> layers_;
  Tensor tokens_, slot_, position_;  // of up to `most` tokens
  std::vector<uint8_t> embedding_;
  void* stream_ = nullptr;  // of the device; the CPU has none
  std::unique_ptr<Graphs> graphs_;
  int64_t replays_ = 0;
  std::map<size_t, Step> steps_;  // of decode, by the number of sequences
};

}  // namespace serve
