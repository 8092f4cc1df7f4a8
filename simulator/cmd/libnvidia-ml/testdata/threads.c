// SPDX-License-Identifier: Apache-2.0

// A program of many threads that use libnvidia-ml at once, also in ways that nvml.h forbids.
// It prints what went wrong, and exits with the number of these lines.

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

enum { THREADS = 64, ROUNDS = 20 };

static atomic_int wrong;

static void expect(nvmlReturn_t got, nvmlReturn_t want, const char *what)
{
	if (got == want)
		return;
	atomic_fetch_add(&wrong, 1);
	printf("%s: %s, want %s\n", what, nvmlErrorString(got), nvmlErrorString(want));
}

static void read_device(nvmlDevice_t device)
{
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], small[4];
	nvmlMemory_v2_t memory = {.version = nvmlMemory_v2};
	nvmlGpuFabricInfoV_t fabric = {.version = nvmlGpuFabricInfo_v3};
	nvmlPciInfo_t pci;
	nvmlProcessInfo_t processes[4];
	unsigned int count = 4;

	expect(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)), NVML_SUCCESS, "UUID");
	expect(nvmlDeviceGetUUID(device, small, sizeof(small)), NVML_ERROR_INSUFFICIENT_SIZE, "UUID in four bytes");
	expect(nvmlDeviceGetUUID(device, NULL, 0), NVML_ERROR_INVALID_ARGUMENT, "UUID without a buffer");
	expect(nvmlDeviceGetMemoryInfo_v2(device, &memory), NVML_SUCCESS, "memory");
	memory.version = 77;
	expect(nvmlDeviceGetMemoryInfo_v2(device, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "memory of an unknown version");
	expect(nvmlDeviceGetGpuFabricInfoV(device, &fabric), NVML_SUCCESS, "fabric");
	fabric.version = 0;
	expect(nvmlDeviceGetGpuFabricInfoV(device, &fabric), NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "fabric without a version");
	expect(nvmlDeviceGetPciInfo(device, &pci), NVML_SUCCESS, "PCI");
	expect(nvmlDeviceGetComputeRunningProcesses(device, &count, processes), NVML_SUCCESS, "processes");
	count = 9;
	expect(nvmlDeviceGetComputeRunningProcesses(device, &count, NULL), NVML_ERROR_INVALID_ARGUMENT, "processes without an array");
	expect(nvmlDeviceGetFanSpeed(device, &count), NVML_ERROR_NOT_SUPPORTED, "a function that is not simulated");
}

static void use_bad_handles(void)
{
	nvmlDevice_t none = {0};
	nvmlGpuInstance_t instance = {0};
	unsigned int n;

	expect(nvmlDeviceGetIndex(none, &n), NVML_ERROR_INVALID_ARGUMENT, "no handle");
	for (uintptr_t address = 1; address < (uintptr_t)1 << 47; address = address * 8 + 5) {
		memcpy(&none, &address, sizeof(none));
		memcpy(&instance, &address, sizeof(instance));
		expect(nvmlDeviceGetIndex(none, &n), NVML_ERROR_INVALID_ARGUMENT, "a number in place of a handle");
		expect(nvmlGpuInstanceDestroy(instance), NVML_ERROR_INVALID_ARGUMENT, "a number in place of an instance");
	}
	expect(nvmlDeviceGetHandleByIndex(1000, &none), NVML_ERROR_INVALID_ARGUMENT, "GPU 1000");
	expect(nvmlDeviceGetHandleByIndex(0, NULL), NVML_ERROR_INVALID_ARGUMENT, "a handle to nowhere");
	expect(nvmlDeviceGetHandleByUUID(NULL, &none), NVML_ERROR_INVALID_ARGUMENT, "no UUID");
}

static void wait_for_events(nvmlDevice_t device)
{
	nvmlEventSet_t set;
	nvmlEventData_t data;

	expect(nvmlEventSetCreate(&set), NVML_SUCCESS, "event set");
	expect(nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, set), NVML_SUCCESS, "register");
	expect(nvmlEventSetWait(set, &data, 1), NVML_ERROR_TIMEOUT, "wait");
	expect(nvmlEventSetFree(set), NVML_SUCCESS, "free");
	expect(nvmlEventSetWait(set, &data, 1), NVML_ERROR_INVALID_ARGUMENT, "wait for a set that is gone");
}

// cut makes and destroys an instance. Threads that come late find no place.
static void cut(nvmlDevice_t device)
{
	nvmlGpuInstanceProfileInfo_t profile;
	nvmlGpuInstance_t instance;
	nvmlComputeInstance_t compute;
	nvmlComputeInstanceInfo_t info;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];

	expect(nvmlDeviceGetGpuInstanceProfileInfo(device, NVML_GPU_INSTANCE_PROFILE_1_SLICE, &profile), NVML_SUCCESS, "profile");
	nvmlReturn_t ret = nvmlDeviceCreateGpuInstance(device, profile.id, &instance);
	if (ret == NVML_ERROR_INSUFFICIENT_RESOURCES)
		return;
	expect(ret, NVML_SUCCESS, "create");
	expect(nvmlGpuInstanceCreateComputeInstance(instance, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &compute), NVML_SUCCESS, "compute instance");
	expect(nvmlComputeInstanceGetInfo(compute, &info), NVML_SUCCESS, "info");
	expect(nvmlDeviceGetName(info.device, name, sizeof(name)), NVML_SUCCESS, "name");
	expect(nvmlGpuInstanceDestroy(instance), NVML_ERROR_IN_USE, "destroy an instance in use");
	expect(nvmlComputeInstanceDestroy(compute), NVML_SUCCESS, "destroy the compute instance");
	expect(nvmlGpuInstanceDestroy(instance), NVML_SUCCESS, "destroy");
}

static void *run(void *number)
{
	unsigned int count, index;
	nvmlDevice_t device;

	for (int round = 0; round < ROUNDS; round++) {
		expect(nvmlInit(), NVML_SUCCESS, "init");
		expect(nvmlDeviceGetCount(&count), NVML_SUCCESS, "count");
		index = (uintptr_t)number % count;
		expect(nvmlDeviceGetHandleByIndex(index, &device), NVML_SUCCESS, "handle");
		read_device(device);
		if (round == 0)
			use_bad_handles();
		if (index == 0)
			cut(device);
		else
			wait_for_events(device);
		expect(nvmlShutdown(), NVML_SUCCESS, "shutdown");
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	nvmlDevice_t device;
	nvmlReturn_t activation;
	unsigned int count;

	expect(nvmlDeviceGetCount(&count), NVML_ERROR_UNINITIALIZED, "count before init");
	expect(nvmlDeviceGetFanSpeed((nvmlDevice_t){0}, &count), NVML_ERROR_UNINITIALIZED, "fan before init");
	expect(nvmlShutdown(), NVML_ERROR_UNINITIALIZED, "shutdown before init");
	expect(nvmlInit(), NVML_SUCCESS, "init");
	expect(nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS, "GPU 0");
	expect(nvmlDeviceSetMigMode(device, NVML_DEVICE_MIG_ENABLE, &activation), NVML_SUCCESS, "MIG mode");
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, (void *)i))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	expect(nvmlShutdown(), NVML_SUCCESS, "shutdown");
	expect(nvmlShutdown(), NVML_ERROR_UNINITIALIZED, "shutdown once too often");
	return atomic_load(&wrong) > 100 ? 100 : atomic_load(&wrong);
}
