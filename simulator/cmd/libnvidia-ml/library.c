// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "library.h"
#include "notsimulated.h"

const char *library_path(void)
{
	Dl_info info;

	if (!dladdr((void *)library_path, &info) || !info.dli_fname)
		return "";
	return info.dli_fname;
}

const char *state_folder(void)
{
	const char *folder = getenv("GPU_SIM_STATE");

	return folder ? folder : "";
}

const char *calls_file(void)
{
	const char *file = getenv("GPU_SIM_CALLS");

	return file ? file : "";
}

static atomic_int initialised;

void set_initialised(int on)
{
	atomic_store(&initialised, on);
}

int not_simulated(void)
{
	enum { NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_NOT_SUPPORTED = 3 };

	return atomic_load(&initialised) ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}
