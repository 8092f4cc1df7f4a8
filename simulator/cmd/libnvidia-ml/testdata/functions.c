// SPDX-License-Identifier: Apache-2.0

// A program that calls the functions of its input with zeros: before nvmlInit, and after the
// last nvmlShutdown. It prints the functions that are missing and the answers that are wrong.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

typedef nvmlReturn_t (*function)(void *, void *, void *, void *, void *, void *);

static char names[600][80];
static int count;

static void call(const char *when)
{
	for (int i = 0; i < count; i++) {
		function f = (function)dlsym(RTLD_DEFAULT, names[i]);

		if (!f)
			printf("%s: missing\n", names[i]);
		else if (f(0, 0, 0, 0, 0, 0) != NVML_ERROR_UNINITIALIZED)
			printf("%s: not uninitialized %s\n", names[i], when);
	}
}

int main(void)
{
	while (count < 600 && scanf("%79s", names[count]) == 1)
		count++;
	call("before nvmlInit");
	if (nvmlInit() || nvmlInit() || nvmlShutdown() || nvmlShutdown())
		printf("init and shutdown failed\n");
	call("after the last nvmlShutdown");
	return 0;
}
