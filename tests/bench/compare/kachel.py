"""Kachel's C API as Python objects: Engine, Kernel, Call, and the result of a tuning. Tensors are whatever has a
pointer; nothing here knows torch or numpy. A failing call raises KachelError with the library's own words. A handle
is released with its object; objects keep alive what they need."""
import ctypes as c
import math
import struct

from . import capi


class KachelError(RuntimeError):
    def __init__(self, status, message, log=""):
        super().__init__(f"{status}: {message}" + (f"\n{log}" if log else ""))
        self.status, self.message, self.log = status, message, log


class Param:
    """One parameter of a kernel, as reflection tells it."""

    def __init__(self, info):
        self.name, self.type, self.shape = (text.decode() for text in (info.name, info.type, info.shape))
        self.kind, self.rank = capi.KINDS[info.kind], info.rank


class Argument:
    """A tensor argument: type name, shape, pointer. `strides` in elements; None is contiguous."""

    def __init__(self, dtype, shape, pointer, strides=None):
        self.dtype, self.shape, self.pointer, self.strides = dtype, tuple(shape), pointer, strides


class Tuning:
    """Which configurations were tried and which one won. `winner` is "" if nothing decided."""

    def __init__(self, library, handle):
        index = library.tuning_winner(handle)
        self.total_ns = library.tuning_total_ns(handle)
        self.from_store = bool(library.tuning_from_store(handle))
        self.candidates = []
        for i in range(library.tuning_count(handle)):
            one = capi.Candidate()
            library.tuning_candidate(handle, i, c.byref(one))
            self.candidates.append({
                "configuration": one.configuration.decode(), "state": capi.STATES[one.state],
                "message": one.message.decode(), "median_ns": one.median_ns, "low_ns": one.low_ns,
                "high_ns": one.high_ns, "compile_ns": one.compile_ns, "registers": one.registers,
                "shared_bytes": one.shared_bytes, "spill_bytes": one.spill_bytes, "predicted_ns": one.predicted_ns})
        self.winner = self.candidates[index]["configuration"] if index >= 0 else ""


class Engine:
    def __init__(self, library=None, store="", policy="blocking", budget_s=0, cpu_threads=0, compile_threads=0):
        """`library` is a capi.Library or a path. `store`: "" is memory only, None the user's. `budget_s` 0: default."""
        self.library = library if isinstance(library, capi.Library) else capi.Library(library)
        self._handle = capi.P()
        options = capi.EngineOptions(
            store_path=None if store is None else str(store).encode(), policy=capi.POLICIES[policy],
            tune_budget_ns=int(budget_s * 1e9), cpu_threads=cpu_threads, compile_threads=compile_threads)
        self.call("engine_create", c.byref(options), c.byref(self._handle))

    def call(self, name, *arguments):
        """A function whose last parameter is the error; raises what it yields."""
        error = capi.P()
        status = getattr(self.library, name)(*arguments, c.byref(error))
        if status == 0:
            return
        category = self.library.status_name(status).decode()
        if not error:
            raise KachelError(category, f"kachel_{name}")
        message = self.library.error_message(error).decode(errors="replace")
        log = self.library.error_log(error).decode(errors="replace")
        self.library.error_release(error)
        raise KachelError(category, message, log)

    def devices(self):
        count = c.c_int32()
        self.library.engine_device_count(self._handle, c.byref(count))
        infos = [capi.DeviceInfo() for _ in range(count.value)]
        for i, info in enumerate(infos):
            self.call("engine_device_info", self._handle, i, c.byref(info))
        return infos

    def device(self, kind):
        """The first device of a kind, capi.CPU or capi.CUDA."""
        for info in self.devices():
            if info.device.type == kind:
                return info
        raise KachelError("no device", f"Kachel sees no {'CUDA' if kind == capi.CUDA else 'CPU'} device")

    def stats(self):
        stats = capi.Stats()
        self.library.engine_stats(self._handle, c.byref(stats))
        return stats

    def kernel(self, text, name=None, consts=None, file="program"):
        return Kernel(self, text, name, consts or {}, file)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.library.engine_release(self._handle)


class Kernel:
    def __init__(self, engine, text, name, consts, file):
        self.engine, self.library = engine, engine.library
        self._handle, module = capi.P(), capi.P()
        data = text.encode()
        engine.call("module_create", engine._handle, data, len(data), file.encode(), c.byref(module))
        try:
            values = (capi.Const * len(consts))(*[capi.Const(key.encode(), int(value), float(value))
                                                  for key, value in consts.items()])
            engine.call("kernel_get", module, name.encode() if name else None, values, len(values),
                        c.byref(self._handle))
        finally:
            self.library.module_release(module)
        self.name = self.library.kernel_name(self._handle).decode()
        self.dims = [self.library.kernel_dim_name(self._handle, i).decode()
                     for i in range(self.library.kernel_dim_count(self._handle))]
        self.params = []
        for i in range(self.library.kernel_param_count(self._handle)):
            info = capi.ParamInfo()
            self.library.kernel_param(self._handle, i, c.byref(info))
            self.params.append(Param(info))

    def shape(self, index, dims):
        """The shape of parameter `index` for the dimensions {name: value}."""
        missing = [name for name in self.dims if name not in dims]
        if missing:
            raise KachelError("invalid", f"{self.name} needs a value for {', '.join(missing)}")
        values = (c.c_int64 * len(self.dims))(*[dims[name] for name in self.dims])
        out = (c.c_int64 * 5)()
        self.engine.call("kernel_param_shape", self._handle, index, values, len(values), out)
        return tuple(out[:self.params[index].rank])

    def arguments(self, values, device):
        """Argument objects and scalars in declared order to what the C API takes. `device` is a capi.Device."""
        if len(values) != len(self.params):
            raise KachelError("invalid", f"{self.name} takes {len(self.params)} arguments, not {len(values)}")
        args = (capi.Arg * len(values))()
        args.kept = []  # what the structs point to
        for arg, value in zip(args, values):
            if isinstance(value, Argument):
                arg.kind, arg.u.tensor = capi.ARG_TENSOR, c.pointer(self._tensor(value, device, args.kept))
            elif isinstance(value, float):
                arg.kind, arg.u.f = capi.ARG_FLOAT, value
            else:
                arg.kind, arg.u.i = capi.ARG_INT, int(value)
        return args

    def _tensor(self, value, device, kept):
        rank = len(value.shape)
        tensor = capi.Tensor(data=value.pointer, device=device, ndim=rank, shape=(c.c_int64 * rank)(*value.shape))
        if value.strides is not None:
            tensor.strides = (c.c_int64 * rank)(*value.strides)
        if self.library.dtype_parse(value.dtype.encode(), c.byref(tensor.dtype)) != 0:
            raise KachelError("invalid", f"no element type is called {value.dtype}")
        kept.append(tensor)
        return tensor

    def prepare(self, args, policy="default", budget_s=0, configuration=None, stream=None, trials=0):
        """Everything that a launch does before its last step; tunes under the policy `blocking`."""
        options = _options(policy, budget_s, configuration)
        options.tune_trials = trials
        self.engine.call("prepare", self._handle, args, len(args), c.byref(options), stream)

    def launch(self, args, policy="default", budget_s=0, configuration=None, stream=None):
        options = _options(policy, budget_s, configuration)
        self.engine.call("launch", self._handle, args, len(args), c.byref(options), stream)

    def configuration(self, args, policy="default"):
        """The one that a launch would run now, short of tuning; "" where there is nothing to choose."""
        text, options = capi.P(), _options(policy, 0, None)
        self.engine.call("explain", self._handle, args, len(args), c.byref(options), capi.EXPLAIN_CONFIGURATION,
                         c.byref(text))
        try:
            return self.library.text_data(text).decode()
        finally:
            self.library.text_release(text)

    def bind(self, args, policy="default", configuration=None):
        return Call(self, args, _options(policy, 0, configuration))

    def tuning(self, args):
        handle = capi.P()
        self.engine.call("tuning_get", self._handle, args, len(args), c.byref(handle))
        try:
            return Tuning(self.library, handle)
        finally:
            self.library.tuning_release(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.library.kernel_release(self._handle)


class Call:
    """A bound call: the way to launch without looking anything up again."""

    def __init__(self, kernel, args, options):
        self.kernel, self._handle = kernel, capi.P()
        kernel.engine.call("bind", kernel._handle, args, len(args), c.byref(options), c.byref(self._handle))

    def with_arguments(self, args):
        """A function of a stream that launches on these arguments, which are alike to those it was bound with."""
        tensors = [arg.u.tensor.contents.data for arg in args if arg.kind == capi.ARG_TENSOR]
        pointers = (capi.P * len(tensors))(*tensors)
        scalars = [_bits(arg) for arg in args if arg.kind != capi.ARG_TENSOR]
        values = (c.c_int64 * len(scalars))(*scalars)
        function, handle, library = self.kernel.library.call_launch, self._handle, self.kernel.library

        def launch(stream=None, keep=self):
            status = function(handle, pointers, values, stream)
            if status:
                raise KachelError(library.status_name(status).decode(), f"launch of {keep.kernel.name}")
        return launch

    def __del__(self):
        if getattr(self, "_handle", None):
            self.kernel.library.call_release(self._handle)


def _options(policy, budget_s, configuration):
    if math.isnan(budget_s) or budget_s < 0:
        raise ValueError("the budget is a number of seconds")
    return capi.LaunchOptions(policy=capi.POLICIES[policy], tune_budget_ns=int(budget_s * 1e9),
                              configuration=configuration.encode() if configuration else None)


def _bits(arg):
    """A scalar as kachel_call_launch takes it: f32 as the bits of a float in the low half."""
    return struct.unpack("<I", struct.pack("<f", arg.u.f))[0] if arg.kind == capi.ARG_FLOAT else arg.u.i
