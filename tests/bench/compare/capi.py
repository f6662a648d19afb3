"""kachel.h in ctypes: its structs and its functions, one line each. kachel.py makes objects of them."""
import ctypes as c
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]

CPU, CUDA = 1, 2
POLICIES = {"default": 0, "off": 1, "cached_only": 2, "background": 3, "blocking": 4}
KINDS = ("in", "out", "inout", "scalar")
STATES = ("untried", "compile failed", "wrong result", "launch failed", "pruned", "measured", "flawed binary")
ARG_TENSOR, ARG_INT, ARG_FLOAT = range(3)
EXPLAIN_CONFIGURATION = 4


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class Dtype(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", Dtype),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class ArgValue(c.Union):
    _fields_ = [("tensor", c.POINTER(Tensor)), ("i", c.c_int64), ("f", c.c_double)]


class Arg(c.Structure):
    _fields_ = [("kind", c.c_int32), ("reserved", c.c_int32), ("u", ArgValue)]


class Sized(c.Structure):
    """A struct that begins with its own size and may grow."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(type(self)), **fields)


class EngineOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("store_path", c.c_char_p), ("store_max_bytes", c.c_uint64),
                ("tune_budget_ns", c.c_uint64), ("policy", c.c_int32), ("compile_threads", c.c_int32),
                ("cpu_threads", c.c_int32), ("reserved", c.c_int32), ("log", c.c_void_p), ("log_user", c.c_void_p),
                ("scratch_alloc", c.c_void_p), ("scratch_free", c.c_void_p), ("scratch_user", c.c_void_p),
                ("progress", c.c_void_p), ("progress_user", c.c_void_p), ("nvrtc_path", c.c_char_p),
                ("cpu_compiler_path", c.c_char_p)]


class DeviceInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("device", Device), ("name", c.c_char * 128),
                ("architecture", c.c_char * 512), ("driver", c.c_char * 64), ("compiler", c.c_char * 64),
                ("multiprocessors", c.c_int32), ("compute_major", c.c_int32), ("compute_minor", c.c_int32),
                ("reserved", c.c_int32), ("memory_bytes", c.c_int64), ("shared_bytes_per_block", c.c_int64),
                ("l2_bytes", c.c_int64)]


class Const(c.Structure):
    _fields_ = [("name", c.c_char_p), ("i", c.c_int64), ("f", c.c_double)]


class ParamInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("type", c.c_char_p), ("shape", c.c_char_p),
                ("kind", c.c_int32), ("rank", c.c_int32)]


class LaunchOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("policy", c.c_int32), ("reserved", c.c_int32),
                ("tune_budget_ns", c.c_uint64), ("configuration", c.c_char_p), ("tune_trials", c.c_uint32),
                ("reserved_2", c.c_uint32), ("tuning", c.c_void_p)]


class Candidate(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("configuration", c.c_char_p), ("message", c.c_char_p),
                ("state", c.c_int32), ("samples", c.c_uint32), ("median_ns", c.c_double), ("low_ns", c.c_double),
                ("high_ns", c.c_double), ("compile_ns", c.c_double), ("registers", c.c_int32),
                ("reserved", c.c_int32), ("shared_bytes", c.c_int64), ("spill_bytes", c.c_int64),
                ("predicted_ns", c.c_double)]


class Stats(Sized):
    _fields_ = [("struct_size", c.c_size_t)] + [(name, c.c_uint64) for name in (
        "launches", "compiles", "loads", "measurements", "tunings", "specialisations", "store_hits", "store_misses",
        "store_damaged", "store_puts", "nvrtc_opened", "llvm_opened", "lowerings")] + [("last_load_ns", c.c_double)]


P, I, S, Z = c.c_void_p, c.c_int32, c.c_char_p, c.c_size_t
ERR = c.POINTER(P)
ARGS, OPTIONS = c.POINTER(Arg), c.POINTER(LaunchOptions)

# name: (result, parameters). A pointer to a handle that is yielded is POINTER(P).
FUNCTIONS = {
    "abi_version": (c.c_uint32, []),
    "version": (S, []),
    "status_name": (S, [I]),
    "error_message": (S, [P]),
    "error_log": (S, [P]),
    "error_release": (None, [P]),
    "dtype_parse": (I, [S, c.POINTER(Dtype)]),
    "engine_create": (I, [c.POINTER(EngineOptions), c.POINTER(P), ERR]),
    "engine_release": (None, [P]),
    "engine_device_count": (I, [P, c.POINTER(I)]),
    "engine_device_info": (I, [P, I, c.POINTER(DeviceInfo), ERR]),
    "engine_stats": (I, [P, c.POINTER(Stats)]),
    "module_create": (I, [P, S, Z, S, c.POINTER(P), ERR]),
    "module_release": (None, [P]),
    "module_kernel_count": (I, [P]),
    "module_kernel_name": (S, [P, I]),
    "module_const_count": (I, [P, I]),
    "module_const_name": (S, [P, I, I]),
    "module_const_type": (S, [P, I, I]),
    "kernel_get": (I, [P, S, c.POINTER(Const), Z, c.POINTER(P), ERR]),
    "kernel_release": (None, [P]),
    "kernel_name": (S, [P]),
    "kernel_param_count": (I, [P]),
    "kernel_param": (I, [P, I, c.POINTER(ParamInfo)]),
    "kernel_dim_count": (I, [P]),
    "kernel_dim_name": (S, [P, I]),
    "kernel_param_shape": (I, [P, I, c.POINTER(c.c_int64), Z, c.POINTER(c.c_int64), ERR]),
    "launch": (I, [P, ARGS, Z, OPTIONS, P, ERR]),
    "prepare": (I, [P, ARGS, Z, OPTIONS, P, ERR]),
    "bind": (I, [P, ARGS, Z, OPTIONS, c.POINTER(P), ERR]),
    "call_launch": (I, [P, c.POINTER(P), c.POINTER(c.c_int64), P]),
    "call_release": (None, [P]),
    "explain": (I, [P, ARGS, Z, OPTIONS, I, c.POINTER(P), ERR]),
    "text_data": (S, [P]),
    "text_release": (None, [P]),
    "tuning_get": (I, [P, ARGS, Z, c.POINTER(P), ERR]),
    "tuning_release": (None, [P]),
    "tuning_winner": (I, [P]),
    "tuning_count": (I, [P]),
    "tuning_candidate": (I, [P, I, c.POINTER(Candidate)]),
    "tuning_total_ns": (c.c_double, [P]),
    "tuning_from_store": (I, [P]),
}


def find_library(path=None):
    """The library that was asked for, $KACHEL_LIBRARY, a build of this tree, or what the linker finds."""
    for chosen in (path, os.environ.get("KACHEL_LIBRARY")):
        if chosen:
            return str(chosen)
    for preset in ("release", "dev"):
        built = ROOT / "build" / preset / "lib" / "libkachel.so"
        if built.exists():
            return str(built)
    return "libkachel.so.0"


class Library:
    """The functions of kachel.h without their prefix, typed."""

    def __init__(self, path=None):
        self.path = find_library(path)
        shared = c.CDLL(self.path)
        for name, (result, parameters) in FUNCTIONS.items():
            function = getattr(shared, "kachel_" + name)
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)
