"""What a run was made on: versions, the commit, and what nvidia-smi says of clocks, power and throttling."""
import datetime
import os
import platform
import subprocess

from .capi import ROOT

SMI_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active")


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def parse_smi(text, fields=SMI_FIELDS):
    """The first line of nvidia-smi's csv as a dictionary; {} if it is not one."""
    values = [value.strip() for value in text.split("\n")[0].split(",")]
    return dict(zip(fields, values)) if text and len(values) == len(fields) else {}


def gpu_state():
    """Clocks in MHz, degrees, watts, and a bit mask of what holds the clocks down; {} without nvidia-smi."""
    for fields in (SMI_FIELDS, SMI_FIELDS[:-1] + ("clocks_throttle_reasons.active",)):
        state = parse_smi(output_of("nvidia-smi", "--id=0", "--format=csv,noheader,nounits",
                                    "--query-gpu=" + ",".join(fields)))
        if state:
            return state
    return {}


# Bits of nvidia-smi's mask that mean that the clock was lower than the load asked for; 0x1 is idle.
THROTTLES = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal", 0x40: "hardware thermal",
             0x80: "power brake"}


def throttles(state):
    """Names of what slowed the GPU down when `state` was read."""
    try:
        mask = int(state.get("clocks_event_reasons.active", "0"), 16)
    except ValueError:
        return []
    return [name for bit, name in THROTTLES.items() if mask & bit]


def commit():
    """The commit of this tree, "+changes" where the working tree differs; $KACHEL_COMMIT where there is no git."""
    head = output_of("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    if not head:
        return os.environ.get("KACHEL_COMMIT", "unknown")
    changed = output_of("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return head + ("+changes" if changed else "")


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(device):
    found = {"python": platform.python_version()}
    if device == "cuda":
        import torch
        found.update(torch=torch.__version__, cuda=torch.version.cuda, cudnn=str(torch.backends.cudnn.version()))
        cublas = getattr(torch.cuda, "_cublas_version", None)
        if cublas:
            found["cublas"] = str(cublas)
        try:
            import triton
            found["triton"] = triton.__version__
        except ImportError:
            found["triton"] = "absent"
        return found
    import numpy
    from . import peers_cpu
    from .registry import Absent
    found["numpy"] = numpy.__version__
    for name, version in (("OpenBLAS", peers_cpu.openblas_version), ("oneDNN", peers_cpu.onednn_version)):
        try:
            found[name] = version()
        except Absent as reason:
            found[name] = f"absent: {reason}"
    return found


def describe(device, info, library, command):
    """The head of a result."""
    return {"schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": command, "commit": commit(),
            "kachel": {"version": library.version().decode(), "path": library.path},
            "device": {"kind": device, "name": info.name.decode(), "driver": info.driver.decode(),
                       "architecture": info.architecture.decode()[:80], "multiprocessors": info.multiprocessors,
                       "memory_bytes": info.memory_bytes, "l2_bytes": info.l2_bytes},
            "host": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()},
            "versions": versions(device)}
