// Which kernels have several blocks of a cluster for each tile (tile_blocks.h), and what these exchange.
#include <fmt/format.h>

#include "tests/lowering/lowered_text.h"

namespace kachel::lowering {
namespace {

std::string softmax(int64_t columns, const std::string& scope = "fragment", const std::string& type = "f32") {
  return fmt::format(R"(tile 1
kernel softmax(X: {2}[N, {0}], Y: out {2}[N, {0}])
tune rows = 1 | 4
grid r < ceildiv(N, rows)
{{
  {1} x: f32[rows, {0}]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < {0} {{ x[i, d] = exp(x[i, d] - max[k < {0}](x[i, k])) }}
  parallel i < rows, d < {0} {{ x[i, d] /= sum[k < {0}](x[i, k]) }}
  Y[r*rows +: rows, :] = x
}}
)",
                     columns, scope, type);
}

Request on_hopper(const std::string& text, int cluster = 1) {
  Request request{text};
  request.target.architecture = 90;
  request.target.cluster = cluster;
  return request;
}

TEST_CASE("rows that a block cannot hold are dealt out to as few blocks as hold them") {
  CHECK(lowered(on_hopper(softmax(32768))).tile_blocks == 1);
  CHECK(lowered(on_hopper(softmax(50257))).tile_blocks == 2);
  CHECK(lowered(on_hopper(softmax(131072))).tile_blocks == 4);
  const Lowered most = lowered(on_hopper(softmax(262144)));
  CHECK(most.tile_blocks == 8);
  CHECK(most.threads == 512);
  CHECK(most.workspace_bytes == 0);
  CHECK(most.flaw.empty());
  CHECK(most.cluster.empty());
  Request four = on_hopper(softmax(32768));
  four.tunables["rows"] = 4;
  CHECK(lowered(four).tile_blocks == 4);
  // Two on a multiprocessor, where elements of 16 bits come.
  const Lowered narrow = lowered(on_hopper(softmax(131072, "fragment", "bf16")));
  CHECK(narrow.tile_blocks == 8);
  CHECK(narrow.threads == 256);
  CHECK(lowered(on_hopper(softmax(32768, "fragment", "bf16"))).tile_blocks == 1);
  // More than eight have room for.
  CHECK(lowered(on_hopper(softmax(1 << 20))).tile_blocks == 1);
}

TEST_CASE("what they share is stored to all of them, and a barrier is the cluster's") {
  const Lowered row = lowered(on_hopper(softmax(131072)));
  CAPTURE(row.text);
  CHECK(has(row.text, "__cluster_dims__(4, 1, 1) __launch_bounds__(512"));
  CHECK(count(row.text, "mapa.shared::cluster.u32") == 4);
  CHECK(count(row.text, "st.shared::cluster.b32") == 8);  // of a maximum and a sum
  CHECK(!has(row.text, "bar.sync 0"));
  // A store and the reads behind it; the beginning and the end.
  CHECK(count(row.text, "barrier.cluster.wait.acquire;") >= 3);
  CHECK(row.text.find("barrier.cluster.wait;") < row.text.find("mapa"));
  CHECK(has(row.loop_ir, "threads 2048 in 4 blocks"));
}

TEST_CASE("the tunable asks for them where no copies could be shared") {
  CHECK(lowered(on_hopper(softmax(1000), 2)).tile_blocks == 2);
  Request threads = on_hopper(softmax(1000), 8);
  threads.target.threads = 64;
  const Lowered eight = lowered(threads);
  CHECK(eight.tile_blocks == 8);
  CHECK(eight.threads == 64);
  Request product = on_hopper(R"(tile 1
kernel product(A: f16[M, K], B: f16[N, K], C: out f16[M, N])
grid i < ceildiv(M, 128), j < ceildiv(N, 128)
{
  shared a: f16[128, 64], b: f16[128, 64]
  fragment c: f32[128, 128] = 0
  pipelined k < ceildiv(K, 64), 4 {
    a = A[i*128 +: 128, k*64 +: 64]
    b = B[j*128 +: 128, k*64 +: 64]
    c += a @ b^T
  }
  C[i*128 +: 128, j*128 +: 128] = c
}
)",
                              2);
  CHECK(lowered(product).tile_blocks == 1);
  CHECK(lowered(product).cluster == ClusterShape{2, 1});
}

TEST_CASE("tiles in shared memory, other instructions and the plain lowering stay with a block") {
  CHECK(lowered(on_hopper(softmax(30000, "shared"), 2)).tile_blocks == 1);
  Request other = on_hopper(softmax(1000), 2);
  other.target.architecture = 89;
  CHECK(lowered(other).tile_blocks == 1);
  other = on_hopper(softmax(1000), 2);
  other.target.generic = true;
  CHECK(lowered(other).tile_blocks == 1);
  other = on_hopper(softmax(1000), 2);
  other.target.ptx = false;
  CHECK(lowered(other).tile_blocks == 1);
}

}  // namespace
}  // namespace kachel::lowering
