/* SPDX-License-Identifier: Apache-2.0 */

// A CUDA driver with one device, on which a process can have the 512 MiB that
// a limit leaves it. FAIL names a call that fails with error 100.
#include <stdlib.h>
#include <string.h>

static size_t used;
static const size_t limit = 512 << 20;
static int result(const char *call) {
	const char *fail = getenv("FAIL");
	return fail && !strcmp(fail, call) ? 100 : 0;
}

int cuInit(unsigned flags) { return flags ? 1 : result("cuInit"); }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal; }
int cuDeviceGetName(char *name, int length, int device) {
	if (device != 7) return 101;
	strncpy(name, "Made of paper", length);
	return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
	if (device != 7) return 101;
	switch (attribute) {
	case 16: *value = 33; return 0;
	case 75: *value = 9; return 0;
	case 76: *value = 1; return 0;
	default: return 1;
	}
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
	*context = &used;
	return flags || device != 7 ? 1 : result("cuCtxCreate_v2");
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = limit - used; *total = (size_t)80 << 30; return 0; }
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) {
	if (used + bytes > limit) return 2;
	used += bytes;
	*pointer = used;
	return 0;
}
int cuCtxDestroy_v2(void *context) { return context == &used ? 0 : 201; }
