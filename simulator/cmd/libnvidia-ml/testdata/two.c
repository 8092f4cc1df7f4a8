// SPDX-License-Identifier: Apache-2.0

// A program that loads the libraries of several nodes, and prints the GPUs of each.

#include <dlfcn.h>
#include <stdio.h>

#include "nvml.h"

int main(int argc, char **argv)
{
	for (int round = 0; round < 2; round++) {
		for (int i = 1; i < argc; i++) {
			// The second round finds them loaded.
			void *library = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
			nvmlReturn_t (*init)(void) = library ? dlsym(library, "nvmlInit_v2") : 0;
			nvmlReturn_t (*get_count)(unsigned int *) = library ? dlsym(library, "nvmlDeviceGetCount_v2") : 0;
			unsigned int count = 0;

			if (!init || !get_count || init() || get_count(&count))
				printf("%s: no GPUs\n", argv[i]);
			else
				printf("%u GPUs\n", count);
		}
	}
	return 0;
}
