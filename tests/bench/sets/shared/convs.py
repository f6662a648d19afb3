"""What several files of programs share: grouped_convs, other_convs, pooling."""


BF = {"T": "bf16"}
HF = {"T": "f16"}


def cl(x):
    """NHWC in memory as torch's NCHW view"""
    return x.permute(0, 3, 1, 2)


def back(y):
    return y.permute(0, 2, 3, 1)
