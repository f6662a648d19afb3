#!/usr/bin/env python3
"""Random PTX of the instructions that Kachel writes, compared with numpy: what does ptxas get wrong?

    random_ptx.py make FOLDER SEED [COUNT]   writes COUNT (1000) kernels and assembles them (ptxas from PATH or CUDA_HOME)
    random_ptx.py run FOLDER                 runs them on the GPU and names those that differ; needs no toolkit
    random_ptx.py show FOLDER KERNEL THREAD  what each instruction of one should give

A kernel is one of straight lines: 8 to 50 instructions on four integers and four floats a thread, of 256 threads, whose
inputs have NaN, infinities, denormals, and the least and largest integers among them. Floats are compared by value, so
that zeros have no sign; there is no fma, which numpy has none of.
"""
import collections
import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np

THREADS = 256
INTEGERS = [0, 1, -1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, -2, -5, -128, 1000, 65535, 65536,
            -65536, 2**31 - 1, -2**31]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -5.0, 448.0, 65504.0, 1e-40, -1e-40, 1e30, -1e30, 3.4e38, np.inf, -np.inf,
          np.nan]
DIVISORS = [2, 3, 5, 7, 8, 16, 100, 65537]


def wrapped(x):
    return (x + 2**31) % 2**32 - 2**31


def plain(x):  # without a sign
    return x % 2**32


def quotient(a, b):
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


def converted(x):
    whole = np.clip(np.trunc(x.astype(np.float64)), -2**31, 2**31 - 1)
    return np.where(np.isnan(x), 0, whole).astype(np.int64)


def ordered(a, b):
    return ~(np.isnan(a) | np.isnan(b))


# The result's kind, the text, the operands' kinds, the value. r: an integer, v: one that is no constant, c: one that is,
# n: an amount of bits, k: a divisor, f: a float, p: a predicate.
Operation = collections.namedtuple("Operation", "result text operands value")


def operations():
    def of(result, text, operands, value):
        return Operation(result, text, operands, value)

    yield of("r", "add.s32 {d}, {0}, {1};", "vr", lambda a, b: a + b)
    yield of("r", "sub.s32 {d}, {0}, {1};", "vr", lambda a, b: a - b)
    yield of("r", "sub.s32 {d}, {0}, {1};", "cv", lambda a, b: a - b)
    yield of("r", "mul.lo.s32 {d}, {0}, {1};", "vr", lambda a, b: a * b)
    yield of("r", "mad.lo.s32 {d}, {0}, {1}, {2};", "vrv", lambda a, b, c: wrapped(a * b) + c)
    yield of("r", "mul.hi.u32 {d}, {0}, {1};", "vr",
             lambda a, b: ((plain(a).astype(np.uint64) * plain(b).astype(np.uint64)) >> np.uint64(32)).astype(np.int64))
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        yield of("r", name + ".b32 {d}, {0}, {1};", "vr", function)
    yield of("r", "xor.b32 {d}, {0}, -1;", "v", lambda a: ~a)
    yield of("r", "shl.b32 {d}, {0}, {1};", "vn", lambda a, n: a << n)
    yield of("r", "shr.u32 {d}, {0}, {1};", "vn", lambda a, n: plain(a) >> n)
    yield of("r", "shr.s32 {d}, {0}, {1};", "vn", lambda a, n: a >> n)
    yield of("r", "shl.b32 {d}, {0}, {1};", "vv", lambda a, n: np.where(plain(n) < 32, a << np.minimum(plain(n), 31), 0))
    yield of("r", "shr.s32 {d}, {0}, {1};", "vv", lambda a, n: a >> np.minimum(plain(n), 31))
    yield of("r", "bfe.u32 {d}, {0}, 8, 8;", "v", lambda a: plain(a) >> 8 & 255)
    yield of("r", "bfe.s32 {d}, {0}, 4, 4;", "v", lambda a: ((plain(a) >> 4 & 15) ^ 8) - 8)
    for name, function in (("min", np.minimum), ("max", np.maximum)):
        yield of("r", name + ".s32 {d}, {0}, {1};", "vc", function)
        yield of("r", name + ".u32 {d}, {0}, {1};", "vr", lambda a, b, f=function: f(plain(a), plain(b)))
    yield of("r", "{{ .reg .pred less; setp.lt.s32 less, {0}, {1}; selp.b32 {d}, {0}, {1}, less; }}", "vr", np.minimum)
    for sign in "us":
        number = plain if sign == "u" else (lambda x: x)
        yield of("r", f"div.{sign}32 {{d}}, {{0}}, {{1}};", "vk", lambda a, b, n=number: quotient(n(a), b))
        yield of("r", f"rem.{sign}32 {{d}}, {{0}}, {{1}};", "vk", lambda a, b, n=number: n(a) - quotient(n(a), b) * b)
    for name, function in (("add", np.add), ("sub", np.subtract), ("mul.lo", np.multiply), ("max", np.maximum)):
        yield of("r", "{{ .reg .b64 a, b; cvt.s64.s32 a, {0}; cvt.s64.s32 b, {1}; " + name +
                 ".s64 a, a, b; shr.s64 a, a, {2}; cvt.u32.u64 {d}, a; }}", "vvn", lambda a, b, n, f=function: f(a, b) >> n)
    yield of("r", "popc.b32 {d}, {0};", "v", lambda a: np.array([bin(x).count("1") for x in plain(a)]))
    yield of("r", "selp.b32 {d}, {0}, {1}, {2};", "vrp", lambda a, b, p: np.where(p, a, b))
    yield of("r", "cvt.rzi.s32.f32 {d}, {0};", "f", converted)

    yield of("f", "add.rn.f32 {d}, {0}, {1};", "ff", np.add)
    yield of("f", "sub.rn.f32 {d}, {0}, {1};", "ff", np.subtract)
    yield of("f", "mul.rn.f32 {d}, {0}, {1};", "ff", np.multiply)
    yield of("f", "min.f32 {d}, {0}, {1};", "ff", np.fmin)
    yield of("f", "max.f32 {d}, {0}, {1};", "ff", np.fmax)
    yield of("f", "max.NaN.f32 {d}, {0}, {1};", "ff", np.maximum)
    yield of("f", "abs.f32 {d}, {0};", "f", np.abs)
    yield of("f", "neg.f32 {d}, {0};", "f", np.negative)
    yield of("f", "cvt.rn.f32.s32 {d}, {0};", "v", lambda a: a.astype(np.float32))
    yield of("f", "{{ .reg .b16 h; cvt.rn.f16.f32 h, {0}; cvt.f32.f16 {d}, h; }}", "f",
             lambda a: a.astype(np.float16).astype(np.float32))
    yield of("f", "selp.f32 {d}, {0}, {1}, {2};", "ffp", lambda a, b, p: np.where(p, a, b))

    compared = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
    for name, function in compared.items():
        yield of("p", f"setp.{name}.s32 {{d}}, {{0}}, {{1}};", "vr", function)
        yield of("p", f"setp.{name}.u32 {{d}}, {{0}}, {{1}};", "vr", lambda a, b, f=function: f(plain(a), plain(b)))
    for name, fails in (("lt", "geu"), ("le", "gtu"), ("gt", "leu"), ("ge", "ltu")):  # as Code::compare writes them
        yield of("p", f"{{{{ .reg .pred fails; setp.{fails}.f32 fails, {{0}}, {{1}}; not.pred {{d}}, fails; }}}}", "ff",
                 lambda a, b, f=compared[name]: f(a, b))
    yield of("p", "setp.eq.f32 {d}, {0}, {1};", "ff", np.equal)
    yield of("p", "setp.neu.f32 {d}, {0}, {1};", "ff", np.not_equal)
    yield of("p", "setp.num.f32 {d}, {0}, {1};", "ff", ordered)
    for name, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        yield of("p", name + ".pred {d}, {0}, {1};", "pp", function)
    yield of("p", "not.pred {d}, {0};", "p", np.logical_not)


ALL = list(operations())


def inputs():
    numbers = np.random.RandomState(7)

    def mixed(drawn, special):
        picked = np.array(special)[numbers.randint(0, len(special), THREADS)]
        return np.where(numbers.rand(THREADS) < 0.45, picked, drawn)

    integers = [mixed(numbers.randint(-2**31, 2**31, THREADS) >> numbers.choice([0, 0, 26], THREADS), INTEGERS)
                for _ in range(4)]
    floats = [mixed(numbers.randn(THREADS) * 10.0 ** numbers.randint(-3, 4, THREADS), FLOATS).astype(np.float32)
              for _ in range(4)]
    return [x.astype(np.int64) for x in integers], floats


def hexadecimal(x):
    return f"0f{np.array(x, np.float32).view(np.uint32):08X}"


class Kernel:
    def __init__(self, seed):
        self.random, self.lines, self.steps = random.Random(seed), [], []
        integers, floats = inputs()
        self.values = {"r": [(f"x{i}", v) for i, v in enumerate(integers)],
                       "f": [(f"y{i}", v) for i, v in enumerate(floats)],
                       "p": [("true", np.full(THREADS, True))]}
        for _ in range(self.random.choice([8, 16, 30, 50])):
            self.step()

    def operand(self, kind):
        constant = kind in "cnk" or (kind in "rf" and self.random.random() < 0.3)
        if constant and kind == "f":
            x = self.random.choice(FLOATS[:15])
            return hexadecimal(x), np.full(THREADS, x, np.float32)
        if constant:
            x = self.random.randint(0, 31) if kind == "n" else self.random.choice(DIVISORS if kind == "k" else INTEGERS)
            return str(x), np.full(THREADS, x, np.int64)
        known = self.values["r" if kind == "v" else kind]
        return self.random.choice(known[-6:] if self.random.random() < 0.75 else known)

    def step(self):
        operation = self.random.choice(ALL)
        operands = [self.operand(kind) for kind in operation.operands]
        with np.errstate(all="ignore"):
            value = operation.value(*[v for _, v in operands])
        if operation.result == "r":
            value = wrapped(value.astype(np.int64))
        name = f"{operation.result}{len(self.steps)}"
        self.lines.append(operation.text.format(*[text for text, _ in operands], d=name))
        self.steps.append((self.lines[-1], value))
        self.values[operation.result].append((name, value))

    def results(self):
        return self.values["r"][-3:] + self.values["f"][-2:]

    def text(self, name):
        loads = [f"ld.global.b32 x{i}, [from+{4 * THREADS * i}];" for i in range(4)]
        loads += [f"ld.global.f32 y{i}, [from+{4 * THREADS * (4 + i)}];" for i in range(4)]
        stores = [f"st.global.b32 [to+{4 * THREADS * i}], {register};" for i, (register, _) in enumerate(self.results())]
        registers = ".reg .b32 r<64>, x<4>, thread; .reg .f32 f<64>, y<4>; .reg .pred p<64>, true; .reg .b64 from, to, at;"
        begin = ["ld.param.u64 from, [From];", "ld.param.u64 to, [To];", "mov.u32 thread, %tid.x;",
                 "mul.wide.u32 at, thread, 4;", "add.s64 from, from, at;", "add.s64 to, to, at;", "setp.eq.u32 true, 0, 0;"]
        body = "\n".join([registers] + begin + loads + self.lines + stores + ["ret;"])
        return f".visible .entry {name}(.param .u64 From, .param .u64 To) {{\n{body}\n}}\n"


def make(folder, seed, count):
    folder.mkdir(parents=True, exist_ok=True)
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    text += "".join(Kernel(seed + i).text(f"k{i}") for i in range(count))
    (folder / "all.ptx").write_text(text)
    (folder / "seeds.json").write_text(json.dumps({"seed": seed, "count": count}))
    ptxas = shutil.which("ptxas") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "ptxas")
    subprocess.run([ptxas, "-arch=sm_90a", str(folder / "all.ptx"), "-o", str(folder / "all.cubin")], check=True)


class Gpu:
    def __init__(self, cubin):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self.input, self.output = self.memory(8), self.memory(5)
        data = np.concatenate([x.astype(np.int32) for x in inputs()[0]] + [x.view(np.int32) for x in inputs()[1]])
        self.call("cuMemcpyHtoD_v2", self.input, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))

    def call(self, name, *args):
        if code := getattr(self.driver, name)(*args):
            sys.exit(f"{name}: CUDA error {code}")

    def memory(self, rows):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * THREADS * rows))
        return address

    def run(self, name):
        function, out = ctypes.c_void_p(), np.full((5, THREADS), 0x5a5a5a5a, np.int32)
        size, data = ctypes.c_size_t(out.nbytes), out.ctypes.data_as(ctypes.c_void_p)
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        self.call("cuMemcpyHtoD_v2", self.output, data, size)
        args = (ctypes.c_void_p * 2)(ctypes.addressof(self.input), ctypes.addressof(self.output))
        self.call("cuLaunchKernel", function, 1, 1, 1, THREADS, 1, 1, 0, None, args, None)
        self.call("cuMemcpyDtoH_v2", data, self.output, size)
        return out


def run(folder):
    made = json.loads((folder / "seeds.json").read_text())
    gpu, wrong = Gpu((folder / "all.cubin").read_bytes()), 0
    for i in range(made["count"]):
        got = gpu.run(f"k{i}")
        for row, (register, value) in enumerate(Kernel(made["seed"] + i).results()):
            seen = got[row].view(np.float32) if value.dtype == np.float32 else got[row].astype(np.int64)
            differs = (seen != value) & ~((seen != seen) & (value != value))
            if not differs.any():
                continue
            thread = int(np.flatnonzero(differs)[0])
            print(f"k{i}: {register} of {int(differs.sum())} threads; of thread {thread} {seen[thread]}, not {value[thread]}")
            wrong += 1
            break
    print(f"{made['count']} kernels, {wrong} differ")
    return 1 if wrong else 0


def show(folder, number, thread):
    made = json.loads((folder / "seeds.json").read_text())
    kernel = Kernel(made["seed"] + number)
    for name, value in kernel.values["r"][:4] + kernel.values["f"][:4]:
        print(f"{name} = {value[thread]}")
    for line, value in kernel.steps:
        print(f"{line:70} {value[thread]}")


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("make", "run", "show"):
        sys.exit(__doc__)
    folder, rest = pathlib.Path(arguments[1]), [int(x) for x in arguments[2:]]
    if arguments[0] == "make":
        return make(folder, rest[0], rest[1] if len(rest) > 1 else 1000)
    return run(folder) if arguments[0] == "run" else show(folder, *rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
