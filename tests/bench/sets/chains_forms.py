"""Programs of the other chains in another form that is as natural: what a form costs."""
import dataclasses

from sets import chains_conv2d, chains_gemm_elementwise, chains_gemm_norms, chains_transposed

FILES = chains_conv2d, chains_gemm_elementwise, chains_gemm_norms, chains_transposed
BY_NAME = {case.name: case for file in FILES for case in file.CASES}

START, END = "  parallel i < BM, g < GB { mean", "  y[by*BM"


def other(case, tail, *pairs, **changes):
    text = case.text
    for old, new in pairs:
        assert old in text, (case.name, old)
        text = text.replace(old, new)
    return dataclasses.replace(case, name=case.name + tail, text=text, **changes)


# ---- group norm: reductions written where they are used, as examples/layernorm.tile has them, and one group a block
def inline(name):
    case = BY_NAME[name]
    last = case.text[case.text.index("    acc[i, j] = ", case.text.index("let n = ")):].split("\n")[0]
    last = last.split(" = ", 1)[1]
    middle = case.text[case.text.index(START):case.text.index(END)]
    return other(case, "_inline", (", mean: f32[BM, GB], rstd: f32[BM, GB]", ""), (middle, f"""\
  parallel i < BM, g < GB, d < D {{ acc[i, g*D + d] -= sum[k < D](acc[i, g*D + k]) / D }}
  parallel i < BM, g < GB, d < D {{
    let group = bg*GB + g
    let col = group*D + d
    let n = acc[i, g*D + d] * rsqrt(
      sum[k < D](acc[i, g*D + k] * acc[i, g*D + k]) / D + eps) * gamma[group, d] + beta[group, d]
    acc[i, g*D + d] = {last}
  }}
"""))


ONE = (("GB*D", "D"), ("GB * D", "D"), ("GB = 1 | 2 | 4 | 8 | 16, ", ""),
       ("where D <= 256 && BM * D <= 32768", "where BM * D <= 32768"),
       ("bg < ceildiv(G, GB)", "bg < G"), ("f32[BM, GB]", "f32[BM]"), ("i < BM, g < GB", "i < BM"),
       ("mean[i, g]", "mean[i]"), ("rstd[i, g]", "rstd[i]"), ("acc[i, g*D + k]", "acc[i, k]"),
       ("mean[i, j / D]", "mean[i]"), ("rstd[i, j / D]", "rstd[i]"), ("[col / D, col % D]", "[bg, j]"),
       ("bg*(D)", "bg*D"))

# ---- a transposed convolution whose filter tile a region makes, and one that asks of every tap if it meets a pixel
REGION = ("    f = F[c +: BK, bo*BO +: BO, 2*tr + 1 - u, 2*ts + 1 - v]\n",
          "    parallel i < BK, j < BO { f[i, j] = F[c + i, bo*BO + j, 2*tr + 1 - u, 2*ts + 1 - v] }\n")
GATHER = (("grid n < N, kind < 4, bp < ceildiv(H*W, BP)", "grid n < N, bp < ceildiv(P*Q, BP)"),
          ("  let u = kind / 2, v = kind % 2, chunks = ceildiv(C, BK)\n", ""),
          ("pipelined k < 4 * chunks", "pipelined k < ceildiv(16*C, BK)"),
          ("    let tr = k / chunks / 2, ts = k / chunks % 2, c = k % chunks * BK\n", ""),
          ("    f = F[c +: BK, bo*BO +: BO, 2*tr + 1 - u, 2*ts + 1 - v]\n", """\
    parallel i < BK, j < BO {
      let e = k*BK + i
      f[i, j] = F[e / 16, bo*BO + j, e / 4 % 4, e % 4]
    }
"""), ("      let m = bp*BP + j\n      x[i, j] = X[n, c + i, m / W + u - tr, m % W + v - ts]\n", """\
      let e = k*BK + i, m = bp*BP + j
      let y = m / Q + 1 - e / 4 % 4, z = m % Q + 1 - e % 4
      x[i, j] = y % 2 == 0 && z % 2 == 0 ? X[n, e / 16, y / 2, z / 2] : 0
"""), ("Y[n, o, m / W * 2 + u, m % W * 2 + v]", "Y[n, o, m / Q, m % Q]"))

# ---- a convolution whose result's shape is an expression
SHAPES = (("Y: out T[N, O, P, Q])", "Y: out T[N, O, H - 2, W - 2])"), (", P == H - 2, Q == W - 2", ""),
          ("ceildiv(P*Q, BP)", "ceildiv((H - 2)*(W - 2), BP)"),
          ("fragment acc: f32[BO, BP] = 0\n", "fragment acc: f32[BO, BP] = 0\n  let Q = W - 2\n"))

# ---- mish as a quotient: tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)
QUOTIENT = ("    let y = x * tanh(log(1 + exp(x)))\n    acc[i, j] = y * tanh(log(1 + exp(y)))", """\
    let e = exp(min(x, 20))
    let p = e * (e + 2)
    let y = x * p / (p + 2)
    let f = exp(min(y, 20))
    let q = f * (f + 2)
    acc[i, j] = y * q / (q + 2)""")

CASES = [
    inline("gemm_groupnorm_hardtanh"),
    inline("gemm_groupnorm_swish_multiply_swish"),
    other(BY_NAME["gemm_groupnorm_hardtanh"], "_one", *ONE),
    other(BY_NAME["convt2d_add_min_gelu_multiply"], "_region", REGION),
    other(BY_NAME["convt2d_add_min_gelu_multiply"], "_gather", *GATHER),
    other(BY_NAME["convt2d_mish_add_hardtanh_scale_f32"], "_gather", *GATHER),
    other(BY_NAME["conv2d_relu_bias"], "_shapes", *SHAPES),
    other(BY_NAME["conv2d_subtract_subtract_mish"], "_shapes", *SHAPES),
    other(BY_NAME["matmul_mish_mish"], "_quotient", QUOTIENT),
]
