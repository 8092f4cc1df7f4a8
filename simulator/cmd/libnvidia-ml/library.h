// SPDX-License-Identifier: Apache-2.0

// What the Go part of the library needs of C.

// library_path returns the path of this library; empty if the loader does not know it.
const char *library_path(void);

// state_folder returns the environment variable GPU_SIM_STATE; empty if it is not set.
const char *state_folder(void);

// calls_file returns the environment variable GPU_SIM_CALLS; empty if it is not set.
const char *calls_file(void);

// set_initialised says whether functions that are not simulated return
// NVML_ERROR_UNINITIALIZED (0) or NVML_ERROR_NOT_SUPPORTED (1).
void set_initialised(int);
