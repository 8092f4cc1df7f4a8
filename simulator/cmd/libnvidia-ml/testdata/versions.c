// SPDX-License-Identifier: Apache-2.0

// A program that passes structs of known and unknown versions. It prints the wrong answers.

#include <stdio.h>
#include <string.h>

#include "nvml.h"

static nvmlDevice_t device;
static nvmlGpuInstance_t instance;

// A struct of any version, with room for later ones. It begins with its version.
union versioned {
	unsigned int version;
	unsigned char bytes[4096];
};

static nvmlReturn_t memory(void *to) { return nvmlDeviceGetMemoryInfo_v2(device, to); }
static nvmlReturn_t pci(void *to) { return nvmlDeviceGetPciInfoExt(device, to); }
static nvmlReturn_t addressing(void *to) { return nvmlDeviceGetAddressingMode(device, to); }
static nvmlReturn_t fabric(void *to) { return nvmlDeviceGetGpuFabricInfoV(device, to); }
static nvmlReturn_t profile(void *to) { return nvmlDeviceGetGpuInstanceProfileInfoV(device, 0, to); }
static nvmlReturn_t profile_by_id(void *to) { return nvmlDeviceGetGpuInstanceProfileInfoByIdV(device, 19, to); }
static nvmlReturn_t compute(void *to) { return nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, 0, 0, to); }

static const struct {
	const char *name;
	nvmlReturn_t (*call)(void *);
	unsigned int versions[2];
} functions[] = {
	{"memory", memory, {nvmlMemory_v2}},
	{"PCI", pci, {nvmlPciInfoExt_v1}},
	{"addressing mode", addressing, {nvmlDeviceAddressingMode_v1}},
	{"fabric", fabric, {nvmlGpuFabricInfo_v2, nvmlGpuFabricInfo_v3}},
	{"profile", profile, {nvmlGpuInstanceProfileInfo_v2, nvmlGpuInstanceProfileInfo_v3}},
	{"profile by ID", profile_by_id, {nvmlGpuInstanceProfileInfo_v2, nvmlGpuInstanceProfileInfo_v3}},
	{"compute profile", compute, {nvmlComputeInstanceProfileInfo_v2, nvmlComputeInstanceProfileInfo_v3}},
};

static void expect(const char *name, unsigned int version, nvmlReturn_t got, nvmlReturn_t want)
{
	if (got != want)
		printf("%s of version %#x: %s, want %s\n", name, version, nvmlErrorString(got), nvmlErrorString(want));
}

int main(void)
{
	union versioned value, before;
	nvmlReturn_t activation;

	if (nvmlInit() || nvmlDeviceGetHandleByIndex(0, &device) || nvmlDeviceSetMigMode(device, NVML_DEVICE_MIG_ENABLE, &activation) ||
	    nvmlDeviceCreateGpuInstance(device, 19, &instance)) {
		printf("no GPU instance\n");
		return 1;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		// Of no version, of the right number with another size, of a size without a number, of
		// a later version, and all bits.
		const unsigned int known = functions[i].versions[0];
		const unsigned int unknown[] = {0, known + 8, known & 0xffffff, (known & 0xffffff) | 0x63000000, ~0u};

		for (int v = 0; v < 2 && functions[i].versions[v]; v++) {
			memset(&value, 0, sizeof(value));
			value.version = functions[i].versions[v];
			expect(functions[i].name, value.version, functions[i].call(&value), NVML_SUCCESS);
			if (value.version != functions[i].versions[v])
				printf("%s: the version has become %#x\n", functions[i].name, value.version);
		}
		for (size_t v = 0; v < sizeof(unknown) / sizeof(unknown[0]); v++) {
			memset(&value, 0xa5, sizeof(value));
			value.version = unknown[v];
			before = value;
			expect(functions[i].name, unknown[v], functions[i].call(&value), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
			if (memcmp(&value, &before, sizeof(value)))
				printf("%s of version %#x: the struct was written\n", functions[i].name, unknown[v]);
		}
	}
	return 0;
}
