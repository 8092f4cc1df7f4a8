/* SPDX-License-Identifier: Apache-2.0 */

/* A management library of driver release 450 with one GPU: it has the functions
 * of that release that a snapshot and a watch call, and none that came later. */
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TIMEOUT = 10 };

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static int gpu, set, events;

const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "450.80.02", length); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 11000; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpu; return SUCCESS; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = &gpu; return SUCCESS; }
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *info) {
	memset(info, 0, sizeof *info);
	strcpy(info->bus_id, "00000000:1B:00.0");
	return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) { strncpy(text, "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5", length); return SUCCESS; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { *minor = 0; return SUCCESS; }
int nvmlDeviceGetName(void *device, char *text, unsigned length) { strncpy(text, "Tesla V100-SXM2-32GB", length); return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) { total_free_used[0] = 32768ULL << 20; return SUCCESS; }
int nvmlDeviceGetBrand(void *device, int *brand) { *brand = 2; return SUCCESS; }
int nvmlDeviceGetArchitecture(void *device, int *architecture) { *architecture = 5; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 7; *minor = 0; return SUCCESS; }
int nvmlDeviceGetEccMode(void *device, int *current, int *pending) { *current = *pending = 1; return SUCCESS; }
int nvmlDeviceGetPersistenceMode(void *device, int *mode) { *mode = 0; return SUCCESS; }
int nvmlDeviceGetComputeMode(void *device, int *mode) { *mode = 0; return SUCCESS; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) {
	*active = link < 2;
	return link < 4 ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) { *version = 2; return SUCCESS; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *info) {
	memset(info, 0, sizeof *info);
	strcpy(info->bus_id, link < 2 ? "00000000:1C:00.0" : "FFFFFFFF:FF:FF.0");
	return SUCCESS;
}
int nvmlEventSetCreate(void **created) { *created = &set; return SUCCESS; }
int nvmlEventSetFree(void *freed) { return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) { *types = 8; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *in) { return types == 8 ? SUCCESS : NOT_SUPPORTED; }
int nvmlEventSetWait_v2(void *on, struct event *event, unsigned milliseconds) {
	if (events++ > 0)
		return TIMEOUT;
	event->device = &gpu;
	event->type = 8;
	event->data = 79;
	return SUCCESS;
}
