#include "model.h"

#include <algorithm>

namespace serve {
namespace {

void append(std::vector<uint8_t>& bytes, float value, bool narrow) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (narrow) bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // bf16
  for (int i = 0; i < (narrow ? 2 : 4); ++i) bytes.push_back(static_cast<uint8_t>(bits >> 8 * i));
}

}  // namespace

Model::Model(kachel_engine* engine, kachel_device device, const std::string& text, const Shape& shape, bool graphs)
    : engine_(engine), device_(device), shape_(shape), type_(device.type == KACHEL_CPU ? "f32" : "bf16") {
  auto load = [&](auto& handle, const auto& make) {
    must([&](kachel_error** error) {
      typename std::remove_reference_t<decltype(handle)>::pointer made = nullptr;
      const kachel_status status = make(&made, error);
      handle.reset(made);
      return status;
    });
  };
  load(module_, [&](kachel_module** out, kachel_error** error) {
    return kachel_module_create(engine, text.data(), text.size(), "layer.tile", out, error);
  });
  load(prefill_, [&](kachel_kernel** out, kachel_error** error) {
    return kachel_kernel_get(module_.get(), "prefill", nullptr, 0, out, error);
  });
  load(decode_, [&](kachel_kernel** out, kachel_error** error) {
    return kachel_kernel_get(module_.get(), "decode", nullptr, 0, out, error);
  });
  if (device.type != KACHEL_CPU) {
    must([&](kachel_error** error) { return kachel_stream_create(engine, device, &stream_, error); });
    if (graphs) graphs_ = Graphs::open(device.id);
  }
  const Shape& s = shape_;
  const int64_t heads = s.heads + 2 * s.key_heads;
  for (int64_t i = 0; i < s.layers; ++i) {
    Layer layer;
    layer.first = random({s.embed}, 1);
    layer.qkv = random({heads, s.head, s.embed}, 0.06f);
    layer.out = random({s.embed, s.heads, s.head}, 0.03f);
    layer.second = random({s.embed}, 1);
    layer.gate = random({s.feed, s.embed}, 0.06f);
    layer.up = random({s.feed, s.embed}, 0.06f);
    layer.down = random({s.embed, s.feed}, 0.03f);
    layer.keys = random({s.slots, s.most, s.key_heads, s.head}, 0);
    layer.values = random({s.slots, s.most, s.key_heads, s.head}, 0);
    layers_.push_back(std::move(layer));
  }
  tokens_ = Tensor(engine, device, type_, {s.most, s.embed});
  slot_ = Tensor(engine, device, "i32", {s.most});
  position_ = Tensor(engine, device, "i32", {s.most});
  std::uniform_real_distribution<float> any(-1, 1);
  for (int64_t i = 0; i < s.most * s.embed; ++i) append(embedding_, any(random_), device.type != KACHEL_CPU);
}

Model::~Model() {
  steps_.clear();
  if (stream_) kachel_stream_release(engine_, device_, stream_);
}

void Model::wait() {
  must([&](kachel_error** error) { return kachel_stream_synchronize(engine_, device_, stream_, error); });
}

Tensor Model::random(std::vector<int64_t> extents, float scale) {
  int64_t elements = 1;
  for (int64_t extent : extents) elements *= extent;
  std::uniform_real_distribution<float> any(-scale, scale);
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < elements; ++i) append(bytes, scale == 0 ? 0 : any(random_), device_.type != KACHEL_CPU);
  Tensor made(engine_, device_, type_, std::move(extents));
  made.upload(bytes.data(), bytes.size(), nullptr);
  return made;
}

// A token's embedding follows from where it stands.
void Model::place(const std::vector<int32_t>& slots, const std::vector<int32_t>& positions) {
  const size_t row = embedding_.size() / static_cast<size_t>(shape_.most);
  std::vector<uint8_t> rows;
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto at = static_cast<size_t>((slots[i] * 31 + positions[i]) % shape_.most) * row;
    rows.insert(rows.end(), embedding_.begin() + static_cast<std::ptrdiff_t>(at),
                embedding_.begin() + static_cast<std::ptrdiff_t>(at + row));
  }
  tokens_.upload(rows.data(), rows.size(), nullptr);
  slot_.upload(slots.data(), slots.size() * sizeof(int32_t), nullptr);
  position_.upload(positions.data(), positions.size() * sizeof(int32_t), nullptr);
}

void Model::prefill(int32_t slot, int64_t tokens) {
  std::vector<int32_t> slots(static_cast<size_t>(tokens), slot), positions;
  for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
  place(slots, positions);
  int64_t shapes[3][2];
  const kachel_tensor stream = tokens_.first(shapes[0], tokens), of = slot_.first(shapes[1], tokens),
                      at = position_.first(shapes[2], tokens);
  for (const Layer& l : layers_) {
    const kachel_arg args[] = {arg(&stream),       arg(l.keys.view()), arg(l.values.view()),
                               arg(&of),           arg(&at),           arg(l.first.view()),
                               arg(l.qkv.view()),  arg(l.out.view()),  arg(l.second.view()),
                               arg(l.gate.view()), arg(l.up.view()),   arg(l.down.view()),
                               arg(int64_t{slot}), arg(tokens)};
    must([&](kachel_error** error) {
      return kachel_launch(prefill_.get(), args, std::size(args), nullptr, stream_, error);
    });
  }
  wait();
}

Handle<kachel_call> Model::bind_decode(int64_t tokens) {
  int64_t shapes[3][2];
  const kachel_tensor stream = tokens_.first(shapes[0], tokens), of = slot_.first(shapes[1], tokens),
                      at = position_.first(shapes[2], tokens);
  const Layer& l = layers_.front();
  const kachel_arg args[] = {arg(&stream),       arg(l.keys.view()), arg(l.values.view()),
                             arg(&of),           arg(&at),           arg(l.first.view()),
                             arg(l.qkv.view()),  arg(l.out.view()),  arg(l.second.view()),
                             arg(l.gate.view()), arg(l.up.view()),   arg(l.down.view())};
  kachel_call* made = nullptr;
  must([&](kachel_error** error) { return kachel_bind(decode_.get(), args, std::size(args), nullptr, &made, error); });
  return Handle<kachel_call>(made);
}

kachel_status Model::launch_layers(const Step& step) {
  for (const Layer& l : layers_) {
    void* const pointers[] = {tokens_.data(),   l.keys.data(),  l.values.data(), slot_.data(),
                              position_.data(), l.first.data(), l.qkv.data(),    l.out.data(),
                              l.second.data(),  l.gate.data(),  l.up.data(),     l.down.data()};
    const kachel_status status = kachel_call_launch(step.call.get(), pointers, nullptr, stream_);
    if (status != KACHEL_OK) return status;
  }
  return KACHEL_OK;
}

// All that differs from step to step is what the tensors hold, so one graph serves every step of so many sequences.
void Model::decode(const std::vector<int32_t>& slots, const std::vector<int32_t>& positions) {
  place(slots, positions);
  Step& step = steps_[slots.size()];
  if (!step.call) step.call = bind_decode(static_cast<int64_t>(slots.size()));
  if (graphs_ && !step.graph && !step.plain) {
    step.graph = graphs_->capture(stream_, [&] { return launch_layers(step) == KACHEL_OK; });
    step.plain = !step.graph;
  }
  if (step.graph) {
    step.graph->launch(stream_);
    ++replays_;
  } else {
    must(launch_layers(step), nullptr);
  }
  wait();
}

std::vector<float> Model::output(int64_t tokens) {
  const auto count = static_cast<size_t>(tokens * shape_.embed);
  std::vector<float> rows(count);
  if (device_.type == KACHEL_CPU) {
    tokens_.download(rows.data(), count * sizeof(float), nullptr);
    return rows;
  }
  std::vector<uint16_t> narrow(count);
  tokens_.download(narrow.data(), count * sizeof(uint16_t), nullptr);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t{narrow[i]} << 16;
    std::memcpy(&rows[i], &bits, sizeof bits);
  }
  return rows;
}

}  // namespace serve
