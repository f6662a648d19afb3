"""cuBLAS, cuDNN, flash attention and torch's own kernels, all through torch. Every one reads Kachel's tensors.

cuBLAS runs as torch sets it up: f32 accumulation, and for 16-bit types torch's default leave to reduce a split K in 16
bits, which can only make it quicker than what Kachel is held to."""
import torch
import torch.nn.functional as functional

from .registry import Absent, Peer, Registry

PEERS = Registry()


def like(t, name):
    return torch.empty_like(t[name])


@PEERS("cuBLAS")
def cublas(row, t, fast=False):
    if row.group == "gemv":
        out = like(t, "Y")
        return Peer(lambda: torch.mv(t["W"], t["X"], out=out), out)
    a, b, out = t["A"], t["B"].t(), like(t, "C")
    if row.type == "i8":
        return Peer(lambda: torch._int_mm(a, b, out=out), out)
    if row.type == "f8e4m3":
        one = torch.ones((), device=a.device)
        return Peer(lambda: torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=fast, out=out), out)
    precision = "high" if row.type == "tf32" else "highest"

    def run():
        torch.set_float32_matmul_precision(precision)
        return torch.matmul(a, b, out=out)
    return Peer(run, out)


PEERS["cuBLAS fast accumulation"] = lambda row, t: cublas(row, t, fast=True)


@PEERS("cuBLAS as GEMM")
def cublas_gemv_as_gemm(row, t):
    x, w, out = t["X"][None, :], t["W"].t(), like(t, "Y")
    view = out[None, :]
    return Peer(lambda: torch.matmul(x, w, out=view), out)


@PEERS("cuBLAS, product alone")
def cublas_alone(row, t):
    a, b, out = t["A"], t["B"].t(), like(t, "C")
    return Peer(lambda: torch.matmul(a, b, out=out), out, reference="matmul")


@PEERS("torch, 3 kernels")
def eager_bias_gelu(row, t):
    a, b, bias, r = t["A"], t["B"].t(), t["bias"], t["R"]
    return Peer(lambda: functional.gelu(torch.addmm(bias, a, b)) + r)


@PEERS("cuBLAS, 16-bit weights")
def cublas_dequantised(row, t):
    """Four times the bytes of the weights; a product of the same shape with weights of its own."""
    a, out = t["A"], like(t, "C")
    weights = torch.randn(row.dims["N"], row.dims["K"], device=a.device).to(a.dtype).t()
    return Peer(lambda: torch.matmul(a, weights, out=out), out, reference="")


@PEERS("torch int4")
def torch_int4(row, t):
    """torch's _weight_int4pack_mm: (q - 8) * scale + offset, so that the zero point goes into the offset. It wants the
    even element in the high nibble, and a scale and an offset side by side, by groups."""
    from .references_torch import unpacked
    group = row.dims["K"] // row.dims["Kg"]
    weights = t["W"]
    swapped = ((weights & 15) << 4) | (weights >> 4)
    packed = torch.ops.aten._convert_weight_to_int4pack(swapped.contiguous(), 8)
    scale = t["scale"].float()
    offset = (8 - unpacked(t["zero"]).float()) * scale
    both = torch.stack((scale, offset), dim=-1).transpose(0, 1).contiguous().to(torch.bfloat16)
    return Peer(lambda: torch.ops.aten._weight_int4pack_mm(t["A"], packed, group, both))


def attention_by(backend):
    def peer(row, t):
        from torch.nn.attention import SDPBackend, sdpa_kernel  # of torch 2.3 on
        q, k, v = t["Q"], t["K"], t["V"]
        if q.dim() == 3:  # decode: one query a sequence
            q = q[:, None]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        causal = bool(row.steps[0].consts.get("causal", False))
        grouped = q.shape[1] != k.shape[1]
        kept = []  # the latest output, so that each set of buffers has its own

        def run():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=row.scalars["scale"],
                                                              enable_gqa=grouped)
            kept[:] = [out]
            return out.transpose(1, 2)
        try:
            run()
        except RuntimeError as error:
            if "No available kernel" in str(error) or "kernel" in str(error).lower():
                raise Absent(f"torch {torch.__version__} has no kernel of it for this row") from error
            raise
        return Peer(run)
    return peer


PEERS["cuDNN"] = attention_by("CUDNN_ATTENTION")
PEERS["flash"] = attention_by("FLASH_ATTENTION")


@PEERS("flash window")
def flash_window(row, t):
    """Torch's flash attention below its public interface, which knows no windows; nor does its cuDNN."""
    forward = torch.ops.aten._flash_attention_forward
    lengths = (row.dims["Sq"], row.dims["Sk"])

    def run():
        return forward(t["Q"], t["K"], t["V"], None, None, *lengths, 0.0, True, False, scale=row.scalars["scale"],
                       window_size_left=row.scalars["window"] - 1, window_size_right=0)[0]
    return Peer(run)


@PEERS("copy")
def copy(row, t):
    """A device-to-device copy that moves as many bytes as the row must: half of them read, half written."""
    device = next(iter(t.values())).device
    source = torch.randint(0, 256, (int(row.bytes) // 2,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return Peer(lambda: target.copy_(source), reference="")


@PEERS("torch")
def torch_kernel(row, t):
    x, kernel = t["X"], row.reference
    if kernel == "rmsnorm":
        return Peer(lambda: functional.rms_norm(x, x.shape[-1:], t["W"], row.scalars["eps"]))
    if kernel == "layernorm":
        return Peer(lambda: functional.layer_norm(x, x.shape[-1:], t["W"], t["bias"], row.scalars["eps"]))
    if kernel == "softmax":
        return Peer(lambda: torch.softmax(x, dim=-1))
    if kernel == "relu":
        return Peer(lambda: torch.relu(x))
    if kernel == "gelu":
        return Peer(lambda: functional.gelu(x))
    if kernel == "add":
        return Peer(lambda: torch.add(x, t["Z"]))
    raise Absent(f"torch has no kernel for {kernel}")
