// SPDX-License-Identifier: Apache-2.0

// Package cuda is a minimal client of the CUDA driver: it reads the first visible device
// and allocates memory on it. It loads the driver's library at run time, so it does not
// need the CUDA toolkit to build or to run.
package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
	int         code;  // CUresult of the call that failed
	const char *call;  // and its name; NULL where all went well
	char        load[256]; // why the library cannot be loaded
	char        name[96];
	int         major, minor, multiprocessors;
	size_t      total, free_before, taken;
	int         refusal; // CUresult of the allocation that was refused, or 0
} report;

// The constants have the values of cuda.h, which never change.
enum { attribute_multiprocessors = 16, attribute_major = 75, attribute_minor = 76 };

// look does everything in one call and so on one thread: a context belongs to
// the thread that made it.
static void look(size_t step, size_t most, report *r) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		snprintf(r->load, sizeof r->load, "%s", dlerror());
		return;
	}
#define CALL(function, types, args) do { \
		int (*call) types = (int (*) types)dlsym(library, #function); \
		r->code = call ? call args : -1; \
		if (r->code) { r->call = #function; return; } \
	} while (0)

	int device;
	void *context;
	CALL(cuInit, (unsigned), (0));
	CALL(cuDeviceGet, (int *, int), (&device, 0));
	CALL(cuDeviceGetName, (char *, int, int), (r->name, sizeof r->name, device));
	CALL(cuDeviceGetAttribute, (int *, int, int), (&r->multiprocessors, attribute_multiprocessors, device));
	CALL(cuDeviceGetAttribute, (int *, int, int), (&r->major, attribute_major, device));
	CALL(cuDeviceGetAttribute, (int *, int, int), (&r->minor, attribute_minor, device));
	CALL(cuCtxCreate_v2, (void **, unsigned, int), (&context, 0, device));
	CALL(cuMemGetInfo_v2, (size_t *, size_t *), (&r->free_before, &r->total));

	int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2");
	if (!allocate) {
		r->code = -1;
		r->call = "cuMemAlloc_v2";
		return;
	}
	while (r->taken + step <= most) {
		unsigned long long pointer;
		r->refusal = allocate(&pointer, step);
		if (r->refusal)
			break;
		r->taken += step;
	}
	CALL(cuCtxDestroy_v2, (void *), (context)); // frees the memory
}
*/
import "C"

import (
	"errors"
	"fmt"
)

// ErrNoDriver says that there is no CUDA driver to load.
var ErrNoDriver = errors.New("no CUDA driver")

// Report is what a client saw of its first device.
type Report struct {
	Name string `json:"name"`
	// Major and Minor of the compute capability.
	Major int `json:"major"`
	Minor int `json:"minor"`
	// Multiprocessors that the client can compute on.
	Multiprocessors int `json:"multiprocessors"`
	// TotalBytes and FreeBytes of memory, before any was taken.
	TotalBytes uint64 `json:"totalBytes"`
	FreeBytes  uint64 `json:"freeBytes"`
	// TakenBytes of memory until an allocation was refused.
	TakenBytes uint64 `json:"takenBytes"`
	// Refusal is the CUresult of that allocation: 2 is CUDA_ERROR_OUT_OF_MEMORY.
	// 0: none was refused.
	Refusal int `json:"refusal"`
}

// Look creates a context on the first device and allocates memory in steps of step
// bytes. It stops when an allocation fails or most is reached, and frees all of it. The
// environment of the process decides whether it is a client of MPS.
func Look(step, most uint64) (Report, error) {
	var r C.report
	C.look(C.size_t(step), C.size_t(most), &r)
	if load := C.GoString(&r.load[0]); load != "" {
		return Report{}, fmt.Errorf("%w: %s", ErrNoDriver, load)
	}
	if r.call != nil {
		return Report{}, fmt.Errorf("%s: CUDA error %d", C.GoString(r.call), int(r.code))
	}
	return Report{
		Name:            C.GoString(&r.name[0]),
		Major:           int(r.major),
		Minor:           int(r.minor),
		Multiprocessors: int(r.multiprocessors),
		TotalBytes:      uint64(r.total),
		FreeBytes:       uint64(r.free_before),
		TakenBytes:      uint64(r.taken),
		Refusal:         int(r.refusal),
	}, nil
}
