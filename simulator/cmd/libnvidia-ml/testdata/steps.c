// SPDX-License-Identifier: Apache-2.0

// A program that makes a call for each line of its input, and prints the answers.

#include <stdio.h>
#include <string.h>

#include "nvml.h"

static nvmlDevice_t device;
static nvmlEventSet_t set;

// change makes and destroys MIG devices without end. It prints a line for each.
static nvmlReturn_t change(void)
{
	nvmlGpuInstance_t instance;
	nvmlComputeInstance_t compute;
	nvmlReturn_t ret, activation;

	for (ret = nvmlDeviceSetMigMode(device, NVML_DEVICE_MIG_ENABLE, &activation); ret == NVML_SUCCESS;) {
		if ((ret = nvmlDeviceCreateGpuInstance(device, 19, &instance)) == NVML_SUCCESS &&
		    (ret = nvmlGpuInstanceCreateComputeInstance(instance, 0, &compute)) == NVML_SUCCESS) {
			printf("made\n");
			fflush(stdout);
			if ((ret = nvmlComputeInstanceDestroy(compute)) == NVML_SUCCESS)
				ret = nvmlGpuInstanceDestroy(instance);
		}
	}
	return ret;
}

static nvmlReturn_t step(const char *name)
{
	nvmlEventData_t event;
	char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	nvmlReturn_t ret;

	if (!strcmp(name, "init"))
		return nvmlInit();
	if (!strcmp(name, "shutdown"))
		return nvmlShutdown();
	if (!strcmp(name, "handle"))
		return nvmlDeviceGetHandleByIndex(0, &device);
	if (!strcmp(name, "read"))
		return nvmlDeviceGetName(device, text, sizeof(text));
	if (!strcmp(name, "write"))
		return nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
	if (!strcmp(name, "subscribe")) {
		ret = nvmlEventSetCreate(&set);
		return ret ? ret : nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, set);
	}
	if (!strcmp(name, "wait"))
		return nvmlEventSetWait(set, &event, 10 * 60 * 1000);
	if (!strcmp(name, "change"))
		return change();
	return NVML_ERROR_INVALID_ARGUMENT;
}

int main(void)
{
	char line[80];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		printf("%s: %s\n", line, nvmlErrorString(step(line)));
		fflush(stdout);
	}
	return 0;
}
