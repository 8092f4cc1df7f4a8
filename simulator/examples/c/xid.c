// SPDX-License-Identifier: Apache-2.0

// Waits for an XID error of any GPU and prints it. It is linked with -l:libnvidia-ml.so.1 as
// with NVIDIA's own library.
#include <nvml.h>
#include <stdio.h>

// failed prints the error of a call, and returns whether there is one.
static int failed(const char *what, nvmlReturn_t ret) {
	if (ret != NVML_SUCCESS)
		fprintf(stderr, "%s: %s\n", what, nvmlErrorString(ret));
	return ret != NVML_SUCCESS;
}

int main(void) {
	unsigned int count;
	nvmlEventSet_t set;
	if (failed("initialise", nvmlInit()) || failed("count GPUs", nvmlDeviceGetCount(&count)) ||
	    failed("create an event set", nvmlEventSetCreate(&set)))
		return 1;
	for (unsigned int i = 0; i < count; i++) {
		nvmlDevice_t gpu;
		if (failed("get a GPU", nvmlDeviceGetHandleByIndex(i, &gpu)) ||
		    failed("register events", nvmlDeviceRegisterEvents(gpu, nvmlEventTypeXidCriticalError, set)))
			return 1;
	}
	printf("waiting for an XID error of %u GPUs\n", count);
	fflush(stdout);
	nvmlEventData_t event;
	nvmlReturn_t ret;
	do {
		ret = nvmlEventSetWait(set, &event, 1000);
	} while (ret == NVML_ERROR_TIMEOUT);
	unsigned int index;
	if (failed("wait", ret) || failed("get the index", nvmlDeviceGetIndex(event.device, &index)))
		return 1;
	printf("GPU %u: XID %llu\n", index, event.eventData);
	return failed("free the event set", nvmlEventSetFree(set)) || failed("shut down", nvmlShutdown());
}
