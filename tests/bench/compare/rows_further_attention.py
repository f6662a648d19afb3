"""Attention with biases and masks that examples/ have not; what a mask leaves out is no operation."""
import functools

from .rows_further import further


def attention(program, shape, dims, peers, **more):
    return further(program, shape, "bf16", dims, "o", peers, scalars={"scale": dims["hd"] ** -0.5}, **more)


def alibi(length, hd, bs, hn):
    return attention("alibi", f"{length} d{hd} b{bs} h{hn}", {"bs": bs, "hn": hn, "len": length, "hd": hd},
                     ("flex",), flops=2.0 * bs * hn * length * length * hd,
                     bytes=8.0 * bs * hn * length * hd, fills={"slope": "slopes"})


def bias_attention(qn, kn, hd, bs, hn):
    return attention("bias_attention", f"{qn}x{kn} d{hd} b{bs} h{hn}",
                     {"bs": bs, "hn": hn, "qn": qn, "kn": kn, "hd": hd},
                     ("cuDNN, bias", "efficient", "flex"), flops=4.0 * bs * hn * qn * kn * hd,
                     bytes=2.0 * (2 * bs * hn * (qn + kn) * hd + hn * qn * kn))


def prefix_lm(length, hd, bs, hn, kv):
    """Prefixes of 1/8 to 1/2 of the tokens, 5/16 in the mean: a half of all pairs and half of its square."""
    return attention("prefix_lm", f"{length} d{hd} b{bs} h{hn}:{kv}",
                     {"bs": bs, "hn": hn, "kv": kv, "len": length, "hd": hd}, ("flex",),
                     flops=4.0 * bs * hn * length * length * hd * (0.5 + 0.5 * (5 / 16) ** 2),
                     bytes=4.0 * bs * length * hd * (hn + kv), fills={"pre": ("between", length // 8, length // 2)})


@functools.lru_cache(maxsize=None)
def document_lengths(total):
    """Of documents of 17 to some 3000 tokens that fill `total`, short ones more often; the same ones each time."""
    state, left, found = 12345 + total, total, []
    while left:
        state = (state * 1103515245 + 12345) % 2 ** 31
        found.append(min(left, 17 + int((state / 2 ** 31) ** 2 * 3000)))
        left -= found[-1]
    return tuple(found)


def packed_docs(tot, hd, hn):
    lengths = document_lengths(tot)
    return attention("packed_docs", f"{tot} in {len(lengths)} d{hd} h{hn}", {"tot": tot, "hn": hn, "hd": hd},
                     ("flash direct", "flex"), flops=2.0 * hn * hd * sum(n * (n + 1) for n in lengths),
                     bytes=8.0 * tot * hn * hd, fills={"doc": "document numbers", "from": "document starts"})


def mqa_spec(tokens, ctx, hd, bs, heads):
    return attention("mqa_spec", f"{tokens}x{ctx} d{hd} b{bs} h{heads}:1",
                     {"bs": bs, "rows": tokens * heads, "ctx": ctx, "hd": hd},
                     ("flash direct", "cuDNN, bias", "flex", "copy"), consts={"heads": heads},
                     bytes=4.0 * bs * hd * (ctx + tokens * heads))


def rows():
    return [
        alibi(4096, 64, 4, 16), alibi(1777, 64, 2, 25),
        bias_attention(1024, 1024, 64, 8, 12), bias_attention(509, 733, 64, 16, 8),
        prefix_lm(4096, 128, 4, 16, 16), prefix_lm(2500, 128, 3, 24, 8),
        packed_docs(16384, 128, 16), packed_docs(10007, 64, 12),
        mqa_spec(4, 8192, 128, 32, 16), mqa_spec(4, 20011, 64, 3, 12),
    ]
