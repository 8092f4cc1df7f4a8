// SPDX-License-Identifier: Apache-2.0

// A program that prints the driver, and which functions of its arguments the library does not have.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "nvml.h"

int main(int argc, char **argv)
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
	for (int i = 1; i < argc; i++)
		if (!dlsym(RTLD_DEFAULT, argv[i]))
			printf("%s: missing\n", argv[i]);
	return nvmlShutdown() == NVML_SUCCESS ? 0 : 3;
}
