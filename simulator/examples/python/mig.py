# SPDX-License-Identifier: Apache-2.0
"""Makes a MIG device on the first GPU, lists it, and removes it.

It calls the NVIDIA Management Library (NVML) with ctypes, and needs no package.
"""

import ctypes

NVML_SUCCESS = 0
NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1
NVML_GPU_INSTANCE_PROFILE_1_SLICE = 0
NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE = 0
NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0


class GpuInstanceProfileInfo(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_t"""

    _fields_ = [(name, ctypes.c_uint) for name in (
        "id", "isP2pSupported", "sliceCount", "instanceCount", "multiprocessorCount", "copyEngineCount",
        "decoderCount", "encoderCount", "jpegCount", "ofaCount")] + [("memorySizeMB", ctypes.c_ulonglong)]


class ComputeInstanceProfileInfo(ctypes.Structure):
    """nvmlComputeInstanceProfileInfo_t"""

    _fields_ = [(name, ctypes.c_uint) for name in (
        "id", "sliceCount", "instanceCount", "multiprocessorCount", "sharedCopyEngineCount",
        "sharedDecoderCount", "sharedEncoderCount", "sharedJpegCount", "sharedOfaCount")]


nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p


def call(function, *args):
    """Calls a function of NVML and raises its error."""
    ret = getattr(nvml, function)(*args)
    if ret != NVML_SUCCESS:
        raise RuntimeError(f"{function}: {nvml.nvmlErrorString(ret).decode()}")


def text(function, device):
    """Returns what a function writes into a buffer."""
    buffer = ctypes.create_string_buffer(96)
    call(function, device, buffer, ctypes.c_uint(len(buffer)))
    return buffer.value.decode()


def main():
    call("nvmlInit_v2")
    gpu = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(0), ctypes.byref(gpu))
    print(text("nvmlDeviceGetName", gpu))

    status = ctypes.c_uint()
    call("nvmlDeviceSetMigMode", gpu, ctypes.c_uint(NVML_DEVICE_MIG_ENABLE), ctypes.byref(status))
    profile = GpuInstanceProfileInfo()
    call("nvmlDeviceGetGpuInstanceProfileInfo", gpu, ctypes.c_uint(NVML_GPU_INSTANCE_PROFILE_1_SLICE), ctypes.byref(profile))
    gpu_instance = ctypes.c_void_p()
    call("nvmlDeviceCreateGpuInstance", gpu, profile.id, ctypes.byref(gpu_instance))
    compute_profile = ComputeInstanceProfileInfo()
    call("nvmlGpuInstanceGetComputeInstanceProfileInfo", gpu_instance, ctypes.c_uint(NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE),
         ctypes.c_uint(NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED), ctypes.byref(compute_profile))
    compute_instance = ctypes.c_void_p()
    call("nvmlGpuInstanceCreateComputeInstance", gpu_instance, compute_profile.id, ctypes.byref(compute_instance))

    mig = ctypes.c_void_p()
    call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, ctypes.c_uint(0), ctypes.byref(mig))
    print(text("nvmlDeviceGetName", mig))

    call("nvmlComputeInstanceDestroy", compute_instance)
    call("nvmlGpuInstanceDestroy", gpu_instance)
    call("nvmlDeviceSetMigMode", gpu, ctypes.c_uint(NVML_DEVICE_MIG_DISABLE), ctypes.byref(status))
    call("nvmlShutdown")


if __name__ == "__main__":
    main()
