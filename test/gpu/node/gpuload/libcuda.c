// SPDX-License-Identifier: Apache-2.0

// A stand-in for libcuda.so.1, which lets gpuload run without a GPU. It simulates little: an H200 with 132
// multiprocessors, of which the variables of MPS give a part, as in a share; the memory of a context; sleep in place of
// kernels; and the refusal of a write to no address.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static size_t used;
static int faulted;
static int multiprocessors(void) {
  char *percentage = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  return percentage ? 132 * atoi(percentage) / 100 : 132;
}
static size_t all(void) {
  char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"); // as in 0=4096M
  return limit && (limit = strchr(limit, '=')) ? strtoul(limit + 1, 0, 10) << 20 : (size_t)143771 << 20;
}
int cuInit(unsigned f) { (void)f; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i ? 101 : 0; }
int cuDeviceGetName(char *name, int n, int d) { (void)d; strncpy(name, "stand-in", n); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { (void)a; (void)d; *v = multiprocessors(); return 0; }
int cuCtxCreate_v2(void **c, unsigned f, int d) { (void)f; (void)d; *c = &used; used = (28 + 37 * (size_t)multiprocessors() / 10) << 20; return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = all() - used; *t = all(); return 0; }
int cuMemAlloc_v2(uint64_t *at, size_t n) { if (used + n > all()) return 2; *at = 4096 + used; used += n; return 0; }
int cuModuleLoadData(void **m, const void *ptx) { (void)ptx; *m = &used; return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { (void)m; *f = (void *)strdup(name); return 0; }
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, void *h, void **args, void **x) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)s, (void)h, (void)x;
  if (!strcmp(f, "poke") && *(uint64_t *)args[0] < 4096) faulted = 1;
  else usleep(100);
  return 0;
}
int cuStreamCreate(void **s, unsigned f) { (void)f; *s = &used; return 0; }
int cuStreamBeginCapture_v2(void *s, int mode) { (void)s; (void)mode; return 0; }
int cuStreamEndCapture(void *s, void **graph) { (void)s; *graph = &used; return 0; }
int cuGraphInstantiateWithFlags(void **e, void *graph, unsigned long long f) { (void)f; *e = graph; return 0; }
int cuGraphLaunch(void *e, void *s) { (void)e; (void)s; usleep(100); return 0; }
int cuCtxSynchronize(void) { return faulted ? 700 : 0; }
int cuGetErrorName(int code, const char **name) { *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0; }
