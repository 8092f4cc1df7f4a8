// SPDX-License-Identifier: Apache-2.0

// A program that prints the driver, and a function that the library does not have.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "nvml.h"

int main(void)
{
	char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
	unsigned int count;
	nvmlReturn_t ret = nvmlInit();

	if (ret != NVML_SUCCESS) {
		printf("nvmlInit: %s\n", nvmlErrorString(ret));
		return 1;
	}
	if (nvmlDeviceGetCount(&count) != NVML_SUCCESS || nvmlSystemGetDriverVersion(version, sizeof(version)) != NVML_SUCCESS)
		return 2;
	printf("%u GPUs of driver %s\n", count, version);
	if (!dlsym(RTLD_DEFAULT, "nvmlDeviceSetMemoryLimits_v1"))
		printf("nvmlDeviceSetMemoryLimits_v1: missing\n");
	return nvmlShutdown() == NVML_SUCCESS ? 0 : 3;
}
