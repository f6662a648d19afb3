// The CPU path beside its peers: f32 products beside OpenBLAS, softmax and rmsnorm beside memcpy of the same bytes.
// Random data, results checked, both sides interleaved in one run. Prints medians over rounds of both times and of the
// ratio of each pair. With one thread, time is the thread's processor time, so that what else the machine does counts
// less; with more it is wall time.
//
//   bench_cpu_gemm [--rounds N] [--threads N] [--sizes 512,1024] [--config BM=256,BN=256,BK=256] [--only gemm|rows]
//
// OPENBLAS_CORETYPE is set to SKYLAKEX where the processor has AVX-512, unless it is set already: OpenBLAS does not
// know newer processors of other vendors and would take a slower kernel.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "capi/kachel.h"

namespace {

constexpr const char* kGemm = R"(tile 1
kernel matmul(A: f32[M, K], B: f32[K, N], C: out f32[M, N])
key  M, N, K
tune BM = 128 | 256 | 512, BN = 256 | 512, BK = 128 | 256
grid by < ceildiv(M, BM), bx < ceildiv(N, BN)
{
  shared   As: f32[BM, BK], Bs: f32[BK, BN]
  fragment acc: f32[BM, BN] = 0

  pipelined k < ceildiv(K, BK), 2 {
    As = A[by*BM +: BM, k*BK +: BK]
    Bs = B[k*BK +: BK, bx*BN +: BN]
    acc += As @ Bs
  }
  parallel i < BM, j < BN { acc[i, j] = acc[i, j] * 1.0 }
  C[by*BM +: BM, bx*BN +: BN] = acc
}
)";
constexpr const char* kSoftmax = R"(tile 1
kernel softmax(X: f32[N, D], Y: out f32[N, D])
key  bucket(N), D
tune rows = 1 | 2 | 4
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] = exp(x[i, d] - max[k < D](x[i, k])) }
  parallel i < rows, d < D { x[i, d] /= sum[k < D](x[i, k]) }
  Y[r*rows +: rows, :] = x
}
)";
constexpr const char* kRmsnorm = R"(tile 1
kernel rmsnorm(X: f32[N, D], W: f32[D], Y: out f32[N, D])
key  bucket(N), D
tune rows = 1 | 2 | 4
grid r < ceildiv(N, rows)
{
  fragment x: f32[rows, D]
  x = X[r*rows +: rows, :]
  parallel i < rows, d < D { x[i, d] *= rsqrt(sum[k < D](x[i, k] * x[i, k]) / D + 0.00001) * W[d] }
  Y[r*rows +: rows, :] = x
}
)";

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}
void must(kachel_status status, kachel_error* error, const char* what) {
  if (status != KACHEL_OK) fail(std::string(what) + ": " + (error ? kachel_error_message(error) : "failed"));
}

double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A matrix of random numbers in memory of its own, 64-byte aligned.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : rows(rows), columns(columns) {
    data =
        static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>((rows * columns * 4 + 4095) / 4096 * 4096)));
    std::mt19937 random(static_cast<unsigned>(rows * 31 + columns));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < rows * columns; ++i) data[i] = uniform(random);
  }
  ~Matrix() { std::free(data); }
  Matrix(const Matrix&) = delete;
  size_t bytes() const { return static_cast<size_t>(rows * columns) * 4; }
  float at(int64_t i, int64_t j) const { return data[i * columns + j]; }
  int64_t rows, columns;
  float* data;
};

class Kernel {
 public:
  Kernel(kachel_engine* engine, const char* text, std::vector<Matrix*> matrices, bool vector_second,
         const std::string& config) {
    kachel_error* error = nullptr;
    must(kachel_module_create(engine, text, std::strlen(text), "bench", &module_, &error), error, "module");
    must(kachel_kernel_get(module_, nullptr, nullptr, 0, &kernel_, &error), error, "kernel");
    kachel_dtype f32;
    kachel_dtype_parse("f32", &f32);
    tensors_.resize(matrices.size());
    shapes_.resize(matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      const bool is_vector = vector_second && i == 1;
      shapes_[i] = {matrices[i]->rows, matrices[i]->columns};
      tensors_[i] = {
          matrices[i]->data, {KACHEL_CPU, 0}, is_vector ? 1 : 2, f32, shapes_[i].data() + is_vector, nullptr, 0};
      args_.push_back({});
      args_[i].u.tensor = &tensors_[i];
    }
    kachel_launch_options options{};
    options.struct_size = sizeof options;
    if (!config.empty()) options.configuration = config.c_str();
    must(kachel_bind(kernel_, args_.data(), args_.size(), &options, &call_, &error), error, "bind");
    for (const Matrix* matrix : matrices) pointers_.push_back(matrix->data);
  }
  ~Kernel() {
    kachel_call_release(call_);
    kachel_kernel_release(kernel_);
    kachel_module_release(module_);
  }
  void operator()() { must(kachel_call_launch(call_, pointers_.data(), nullptr, nullptr), nullptr, "launch"); }

 private:
  kachel_module* module_ = nullptr;
  kachel_kernel* kernel_ = nullptr;
  kachel_call* call_ = nullptr;
  std::vector<kachel_tensor> tensors_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<kachel_arg> args_;
  std::vector<void*> pointers_;
};

// `peer` may be empty.
void compare(const std::string& name, const std::function<void()>& ours, const std::function<void()>& peer, double work,
             const char* unit, int rounds, int threads) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> a, b, ratio;
  for (int round = -1; round < rounds; ++round) {
    double start = seconds(clock);
    ours();
    double middle = seconds(clock);
    if (peer) peer();
    double end = seconds(clock);
    if (round < 0) continue;
    a.push_back(middle - start), b.push_back(end - middle);
    ratio.push_back((end - middle) / (middle - start));
  }
  const double best_a = *std::min_element(a.begin(), a.end()), best_b = *std::min_element(b.begin(), b.end());
  std::printf("%-22s %d thread%s  ours %8.1f %s", name.c_str(), threads, threads > 1 ? "s" : " ", work / median(a),
              unit);
  if (peer)
    std::printf("  peer %8.1f %s  ratio %.2f  (of the least times %.2f)", work / median(b), unit, median(ratio),
                best_b / best_a);
  std::printf("\n");
  std::fflush(stdout);
}

void near(double got, double want, double scale, const std::string& what) {
  if (!(std::abs(got - want) <= 1e-5 * scale)) fail(what + ": wrong result");
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 20, only_threads = 0;
  std::string sizes = "512,1024,2048", config, only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds")
      rounds = std::atoi(argv[i + 1]);
    else if (option == "--threads")
      only_threads = std::atoi(argv[i + 1]);
    else if (option == "--sizes")
      sizes = argv[i + 1];
    else if (option == "--config")
      config = argv[i + 1];
    else if (option == "--only")
      only = argv[i + 1];
    else
      fail("unknown option " + option);
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 0);
#endif
  void* blas = dlopen("libopenblas.so.0", RTLD_NOW);
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  auto sgemm = blas ? reinterpret_cast<Sgemm>(dlsym(blas, "cblas_sgemm")) : nullptr;
  auto set_threads = blas ? reinterpret_cast<void (*)(int)>(dlsym(blas, "openblas_set_num_threads")) : nullptr;
  if (!sgemm) std::printf("no libopenblas.so.0 (apt-get install libopenblas0-pthread): no peer for products\n");

  for (int threads = 1; threads <= 2; ++threads) {
    if (only_threads && threads != only_threads) continue;
    kachel_engine_options options{};
    options.struct_size = sizeof options;
    options.store_path = "";
    options.cpu_threads = threads;
    kachel_engine* engine = nullptr;
    kachel_error* error = nullptr;
    must(kachel_engine_create(&options, &engine, &error), error, "engine");
    std::stringstream list(sizes);
    for (std::string size; only != "rows" && std::getline(list, size, ',');) {
      const int n = std::atoi(size.c_str());
      Matrix a(n, n), b(n, n), c(n, n), d(n, n);
      Kernel kernel(engine, kGemm, {&a, &b, &c}, false, config);
      if (set_threads) set_threads(threads);
      std::function<void()> peer;
      if (sgemm) peer = [&] { sgemm(101, 111, 111, n, n, n, 1, a.data, n, b.data, n, 0, d.data, n); };
      compare("matmul f32 " + size, [&] { kernel(); }, peer, 2e-9 * n * n * n, "GFLOP/s", rounds, threads);
      for (int64_t i = 0; i < n; i += 37)
        for (int64_t j = 0; j < n; j += 41) {
          double sum = 0;
          for (int64_t k = 0; k < n; ++k) sum += static_cast<double>(a.at(i, k)) * b.at(k, j);
          near(c.at(i, j), sum, n, "matmul");
        }
    }
    if (only != "gemm") {
      const int64_t n = 8192, width = 4096;
      Matrix x(n, width), y(n, width), z(n, width), w(1, width);
      auto peer = [&] { std::memcpy(z.data, x.data, x.bytes()); };
      const double gigabytes = 2e-9 * static_cast<double>(x.bytes());
      {
        Kernel kernel(engine, kSoftmax, {&x, &y}, false, "rows=1");
        compare("softmax 8192x4096", [&] { kernel(); }, peer, gigabytes, "GB/s", rounds, threads);
        double sum = 0, want = 0;
        for (int64_t j = 0; j < width; ++j) sum += std::exp(static_cast<double>(x.at(77, j)));
        want = std::exp(static_cast<double>(x.at(77, 5))) / sum;
        near(y.at(77, 5), want, want, "softmax");
      }
      {
        Kernel kernel(engine, kRmsnorm, {&x, &w, &y}, true, "rows=1");
        compare("rmsnorm 8192x4096", [&] { kernel(); }, peer, gigabytes, "GB/s", rounds, threads);
        double sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += static_cast<double>(x.at(77, j)) * x.at(77, j);
        near(y.at(77, 5), x.at(77, 5) / std::sqrt(sum / width + 1e-5) * w.at(0, 5), 1, "rmsnorm");
      }
    }
    kachel_engine_release(engine);
  }
}
