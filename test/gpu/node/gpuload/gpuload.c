// SPDX-License-Identifier: Apache-2.0

// gpuload computes on the first GPU by the driver API alone: it needs libcuda.so.1 and no SDK.
//
//   gpuload STEP...
//
//   info              device, multiprocessors, memory; a context is up afterwards
//   alloc STEP        allocate in steps of STEP MiB until the driver refuses
//   run S BLOCKS      launch a kernel of about 0.1 ms again and again for S seconds
//   graph S KERNELS   launch a graph of KERNELS kernels of about 10 us one after the other, as a model that
//                     decodes does for each token, again and again for S seconds
//   eager S KERNELS   launch the same kernels each by itself
//   barrier DIR N     wait until N programs are here; each makes a file in DIR, an absolute path
//   hold S            keep everything for S seconds
//   idle S            sleep for S seconds; alone, it needs no GPU
//   fault             write to an address that is not mapped
//
// Each step prints one line of JSON. If the driver refuses a call, gpuload prints the call and the
// driver's code, and ends with status 10. alloc expects a refusal.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// NULL is the program itself, which then has the functions of a stand-in.
#ifndef LIBRARY
#define LIBRARY "libcuda.so.1"
#endif

typedef int status;
typedef uint64_t address;

static struct {
  status (*init)(unsigned);
  status (*count)(int *);
  status (*device)(int *, int);
  status (*name)(char *, int, int);
  status (*attribute)(int *, int, int);
  status (*context)(void **, unsigned, int);
  status (*memory)(size_t *, size_t *);
  status (*allocate)(address *, size_t);
  status (*load)(void **, const void *);
  status (*function)(void **, void *, const char *);
  status (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  status (*wait)(void);
  status (*stream)(void **, unsigned);
  status (*capture)(void *, int);
  status (*captured)(void *, void **);
  status (*instantiate)(void **, void *, unsigned long long);
  status (*replay)(void *, void *);
  status (*text)(status, const char **);
} cu;

// Names of functions in the driver; "_v2" is the ABI of 64-bit sizes.
static const struct { const char *name; void *at; } symbols[] = {
    {"cuInit", &cu.init},
    {"cuDeviceGetCount", &cu.count},
    {"cuDeviceGet", &cu.device},
    {"cuDeviceGetName", &cu.name},
    {"cuDeviceGetAttribute", &cu.attribute},
    {"cuCtxCreate_v2", &cu.context},
    {"cuMemGetInfo_v2", &cu.memory},
    {"cuMemAlloc_v2", &cu.allocate},
    {"cuModuleLoadData", &cu.load},
    {"cuModuleGetFunction", &cu.function},
    {"cuLaunchKernel", &cu.launch},
    {"cuCtxSynchronize", &cu.wait},
    {"cuStreamCreate", &cu.stream},
    {"cuStreamBeginCapture_v2", &cu.capture},
    {"cuStreamEndCapture", &cu.captured},
    {"cuGraphInstantiateWithFlags", &cu.instantiate},
    {"cuGraphLaunch", &cu.replay},
    {"cuGetErrorName", &cu.text},
};

// spin computes four chains of dependent multiplications, and poke writes to an address.
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 out, .param .u32 rounds) {\n"
    "  .reg .pred %p; .reg .f32 %f<6>; .reg .b32 %r<3>; .reg .b64 %rd;\n"
    "  ld.param.u64 %rd, [out]; ld.param.u32 %r1, [rounds]; mov.u32 %r2, 0;\n"
    "  mov.f32 %f1, 0f3F800001; mov.f32 %f2, 0f3F800002; mov.f32 %f3, 0f3F800003; mov.f32 %f4, 0f3F800004; mov.f32 %f5, 0f3F7FFFFF;\n"
    "next:\n"
    "  fma.rn.f32 %f1, %f1, %f5, %f5; fma.rn.f32 %f2, %f2, %f5, %f5; fma.rn.f32 %f3, %f3, %f5, %f5; fma.rn.f32 %f4, %f4, %f5, %f5;\n"
    "  add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1; @%p bra next;\n"
    "  add.f32 %f1, %f1, %f2; add.f32 %f3, %f3, %f4; add.f32 %f1, %f1, %f3; st.global.f32 [%rd], %f1; ret;\n}\n"
    ".visible .entry poke(.param .u64 at) {\n"
    "  .reg .b32 %r; .reg .b64 %rd;\n"
    "  ld.param.u64 %rd, [at]; mov.u32 %r, 1; st.global.u32 [%rd], %r; ret;\n}\n";

enum { ATTRIBUTE_MULTIPROCESSORS = 16, THREADS = 256, ROUNDS = 40000, SHORT_ROUNDS = 4000, DECODE_BLOCKS = 32 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

// must ends the program if the driver refused a call.
static void must(const char *call, status code) {
  const char *name = "";
  if (code == 0) return;
  if (cu.text) cu.text(code, &name);
  printf("{\"step\":\"refused\",\"call\":\"%s\",\"code\":%d,\"name\":\"%s\"}\n", call, code, name);
  fflush(stdout);
  _exit(10); // exit would wait for the device
}

static void fail(const char *what, const char *detail) {
  printf("{\"step\":\"failed\",\"what\":\"%s\",\"detail\":\"%s\"}\n", what, detail ? detail : "");
  exit(2);
}

static void *spin, *poke;

// start makes the context of this process, once.
static void start(void) {
  static int device, started;
  void *context, *module;
  if (started++) return;
  must("cuInit", cu.init(0));
  must("cuDeviceGet", cu.device(&device, 0));
  must("cuCtxCreate", cu.context(&context, 0, device));
  must("cuModuleLoadData", cu.load(&module, ptx));
  must("cuModuleGetFunction", cu.function(&spin, module, "spin"));
  must("cuModuleGetFunction", cu.function(&poke, module, "poke"));
}

static void info(void) {
  char name[96] = "";
  int devices, multiprocessors;
  size_t unused, total;
  double began = now();
  start();
  must("cuDeviceGetCount", cu.count(&devices));
  must("cuDeviceGetName", cu.name(name, sizeof name, 0));
  must("cuDeviceGetAttribute", cu.attribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, 0));
  must("cuMemGetInfo", cu.memory(&unused, &total));
  printf("{\"step\":\"info\",\"devices\":%d,\"name\":\"%s\",\"multiprocessors\":%d,\"totalMiB\":%zu,\"freeMiB\":%zu,\"startSeconds\":%.3f}\n",
         devices, name, multiprocessors, total >> 20, unused >> 20, now() - began);
}

static void alloc(size_t step) {
  size_t sum = 0;
  const char *name = "";
  status code;
  address at;
  start();
  while ((code = cu.allocate(&at, step << 20)) == 0) sum += step;
  cu.text(code, &name);
  printf("{\"step\":\"alloc\",\"allocatedMiB\":%zu,\"code\":%d,\"name\":\"%s\"}\n", sum, code, name);
}

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void launch(void *stream, unsigned blocks, unsigned rounds) {
  static address out;
  void *arguments[] = {&out, &rounds};
  if (!out) must("cuMemAlloc", cu.allocate(&out, 4));
  must("cuLaunchKernel", cu.launch(spin, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
}

// Work that is done again and again: a kernel of n blocks, or n kernels as a graph or not.
static void kernel(unsigned blocks) { launch(NULL, blocks, ROUNDS); }

static void eager(unsigned kernels) {
  while (kernels--) launch(NULL, DECODE_BLOCKS, SHORT_ROUNDS);
}

static void graph(unsigned kernels) {
  static void *stream, *whole, *executable;
  if (!executable) {
    launch(NULL, DECODE_BLOCKS, SHORT_ROUNDS);                      // a capture may not allocate
    must("cuStreamCreate", cu.stream(&stream, 1));     // which does not wait for the default stream
    must("cuStreamBeginCapture", cu.capture(stream, 1)); // calls of this thread
    while (kernels--) launch(stream, DECODE_BLOCKS, SHORT_ROUNDS);
    must("cuStreamEndCapture", cu.captured(stream, &whole));
    must("cuGraphInstantiateWithFlags", cu.instantiate(&executable, whole, 0));
  }
  must("cuGraphLaunch", cu.replay(executable, stream));
}

// repeat does work of size n for some seconds, and waits for the end of each.
static void repeat(const char *step, void (*work)(unsigned), double seconds, unsigned n) {
  enum { MOST = 1 << 20 };
  static float times[MOST]; // milliseconds
  int done = 0;
  start();
  work(n); // the first one loads code
  must("cuCtxSynchronize", cu.wait());
  double began = now(), last = began;
  while (last - began < seconds && done < MOST) {
    work(n);
    must("cuCtxSynchronize", cu.wait());
    double t = now();
    times[done++] = (t - last) * 1e3;
    last = t;
  }
  qsort(times, done, sizeof *times, ascending);
  printf("{\"step\":\"%s\",\"size\":%u,\"launches\":%d,\"seconds\":%.3f,\"perSecond\":%.1f,\"p50ms\":%.3f,\"p99ms\":%.3f,\"maxms\":%.3f}\n",
         step, n, done, last - began, done / (last - began), times[done / 2], times[done * 99L / 100], times[done - 1]);
}

static void barrier(const char *dir, int want) {
  char host[64], path[512];
  double began = now();
  gethostname(host, sizeof host);
  snprintf(path, sizeof path, "%s/%s", dir, host);
  int fd = open(path, O_CREAT | O_WRONLY, 0644);
  if (fd < 0) fail("the file of a barrier cannot be made", path);
  close(fd);
  for (int here = 0; here < want; usleep(2000)) {
    DIR *d = opendir(dir);
    if (!d) fail("the folder of a barrier cannot be read", dir);
    here = 0;
    for (struct dirent *e; (e = readdir(d));) here += e->d_name[0] != '.';
    closedir(d);
    if (now() - began > 180) fail("the other programs did not come to the barrier", dir);
  }
  printf("{\"step\":\"barrier\",\"programs\":%d,\"waitedSeconds\":%.3f}\n", want, now() - began);
}

static void hold(double seconds) {
  printf("{\"step\":\"hold\"}\n");
  fflush(stdout);
  for (double end = now() + seconds; now() < end;) usleep(50000);
  // A fault elsewhere shows in the next call.
  must("cuCtxSynchronize", cu.wait());
  printf("{\"step\":\"held\"}\n");
}

static void fault(void) {
  address nowhere = 0x10;
  void *arguments[] = {&nowhere};
  start();
  must("cuLaunchKernel", cu.launch(poke, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
  must("cuCtxSynchronize", cu.wait());
  fail("a write to no address was not refused", "");
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 3 && !strcmp(argv[1], "idle")) return sleep(atoi(argv[2]));
  void *library = dlopen(LIBRARY, RTLD_NOW);
  if (!library) fail("libcuda.so.1 cannot be opened", dlerror());
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!(*(void **)symbols[i].at = dlsym(library, symbols[i].name))) fail("libcuda.so.1 lacks a function", symbols[i].name);
#define NEXT(left) (i + (left) < argc ? argv[++i] : (fail("a step lacks a value", argv[i]), ""))
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "info")) info();
    else if (!strcmp(argv[i], "alloc")) alloc(strtoul(NEXT(1), NULL, 10));
    else if (!strcmp(argv[i], "run")) { double s = atof(NEXT(1)); repeat("run", kernel, s, strtoul(NEXT(1), NULL, 10)); }
    else if (!strcmp(argv[i], "graph")) { double s = atof(NEXT(1)); repeat("graph", graph, s, strtoul(NEXT(1), NULL, 10)); }
    else if (!strcmp(argv[i], "eager")) { double s = atof(NEXT(1)); repeat("eager", eager, s, strtoul(NEXT(1), NULL, 10)); }
    else if (!strcmp(argv[i], "barrier")) { const char *dir = NEXT(1); barrier(dir, atoi(NEXT(1))); }
    else if (!strcmp(argv[i], "hold")) hold(atof(NEXT(1)));
    else if (!strcmp(argv[i], "fault")) fault();
    else fail("unknown step", argv[i]);
  }
  fflush(stdout);
  _exit(0);
}
