/* A stub of libcuda that logs every call: for tests of the loader, and to measure the host time of
   a launch without a device. It computes nothing. */

#include "cuda.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULES (1 << 16)

static char *text;
static size_t used, room;
static int quiet, fail_code, fail_after, layout_count, layout[256];
static char fail_name[64];
static long modules, launches;
static int static_shared, version = 12080;
static CUcontext owner[MODULES]; /* of each module, by its number */
static __thread CUcontext current;

/* ------------------------------------------------------------------ controls for tests */

const char *stub_log(void) { return text ? text : ""; }
void stub_clear(void) { used = 0; if (text) text[0] = 0; }
void stub_quiet(int on) { quiet = on; }
void stub_static_shared(int bytes) { static_shared = bytes; }
void stub_version(int number) { version = number; }
long stub_launches(void) { return launches; }
void stub_fail(const char *name, int code, int after) {
  snprintf(fail_name, sizeof fail_name, "%s", name);
  fail_code = code;
  fail_after = after;
}
void stub_layout(int count, const int *sizes) {
  layout_count = count;
  memcpy(layout, sizes, count * sizeof *sizes);
}

static void say(const char *format, ...) {
  va_list list;
  if (used + (1 << 16) > room) text = realloc(text, room = 2 * room + (1 << 17));
  va_start(list, format);
  used += vsnprintf(text + used, room - used, format, list);
  va_end(list);
}

static int failing(const char *name) {
  if (!fail_code || strcmp(name, fail_name)) return 0;
  if (fail_after-- > 0) return 0;
  int code = fail_code;
  fail_code = 0;
  return code;
}

#define RECORD(...) do { if (!quiet) say(__VA_ARGS__); } while (0)
#define REFUSE_IF(refusal) do { CUresult code = refusal; if (code) return code; } while (0)
#define ENTER(...)                                                                             \
  RECORD("%s", __func__); RECORD("" __VA_ARGS__); RECORD("\n");                                 \
  REFUSE_IF((CUresult)failing(__func__))

static void say_bytes(const void *data, int size) {
  const unsigned char *bytes = data;
  for (int i = 0; i < size; i++) say("%02x", bytes[i]);
}

/* The handle of a module is twice its number; that of its function is one more. */
static CUresult opened(CUmodule *module) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  owner[++modules % MODULES] = current;
  *module = (CUmodule)(2 * modules);
  return CUDA_SUCCESS;
}

static CUresult misplaced(const void *handle) {
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  return owner[(size_t)handle / 2 % MODULES] == current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ------------------------------------------------------------------ the driver's functions */

CUresult CUDAAPI cuInit(unsigned flags) { ENTER(" %u", flags); return CUDA_SUCCESS; }
CUresult CUDAAPI cuDriverGetVersion(int *found) { *found = version; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetCount(int *count) { *count = 8; return CUDA_SUCCESS; }

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name) {
  *name = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : error == 218 ? "CUDA_ERROR_INVALID_PTX"
        : error == 1 ? "CUDA_ERROR_INVALID_VALUE" : error == 201 ? "CUDA_ERROR_INVALID_CONTEXT"
        : error == 400 ? "CUDA_ERROR_INVALID_HANDLE"
        : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **words) {
  *words = error == 209 ? "no kernel image is available for execution on the device"
         : error == 218 ? "a PTX JIT compilation failed" : error == 1 ? "invalid argument"
         : error == 201 ? "invalid device context"
         : error == 400 ? "invalid resource handle"
         : error == 700 ? "an illegal memory access was encountered" : NULL;
  return *words ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(" %d", ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  *value = which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
         : which == CU_DEVICE_ATTRIBUTE_WARP_SIZE ? 32
         : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
         : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0 : 132;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(" %d", device);
  *context = (CUcontext)(0xc0 + (size_t)device); /* the last digit is the device */
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context) {
  ENTER();
  *context = current;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
  ENTER();
  REFUSE_IF(current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
  *device = (int)((size_t)current & 0xf);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  ENTER(" %p", (void *)context);
  current = context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                    CUjit_option *options, void **values) {
  int elf = !memcmp(image, "\x7f" "ELF", 4);
  char *log = NULL;
  for (unsigned i = 0; i < count; i++)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
  if (log) strcpy(log, "line 7: unknown instruction\n");
  ENTER(" %s", elf ? "ELF" : (const char *)image);
  if (log) log[0] = 0;
  return opened(module);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER();
  return opened(module);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  ENTER(" %p", (void *)module);
  return misplaced(module);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER(" %p %s", (void *)module, name);
  *function = (CUfunction)((size_t)module + 1);
  return misplaced(module);
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  ENTER(" %d", (int)which);
  *value = which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 128 : which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
         ? 16 : which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
         : which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? static_shared : 0;
  return misplaced(function);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  ENTER(" %d %d", (int)which, value);
  return misplaced(function);
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *count, CUfunction f, const CUlaunchConfig *c) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr pointer) {
  *(CUdeviceptr *)data = pointer;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                        void *address, const cuuint64_t *dim,
                                        const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                        CUtensorMapFloatOOBfill fill) {
  RECORD("map %d@%d %p dim", (int)type, (int)((size_t)map % 64), address);
  for (unsigned i = 0; i < rank; i++) RECORD(" %llu", (unsigned long long)dim[i]);
  RECORD(" strides");
  for (unsigned i = 0; i + 1 < rank; i++) RECORD(" %llu", (unsigned long long)strides[i]);
  RECORD(" box");
  for (unsigned i = 0; i < rank; i++) RECORD(" %u/%u", box[i], steps[i]);
  RECORD(" %d %d %d %d\n", (int)interleave, (int)swizzle, (int)l2, (int)fill);
  REFUSE_IF((CUresult)failing(__func__));
  REFUSE_IF(current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
  for (int i = 0; i < 128; i++) ((unsigned char *)map)[i] = (unsigned char)(i + (size_t)address);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuTensorMapEncodeIm2col(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dim, const cuuint64_t *strides, const int *lower, const int *upper,
    cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
    CUtensorMapFloatOOBfill fill) {
  RECORD("im2col %d@%d %p dim", (int)type, (int)((size_t)map % 64), address);
  for (unsigned i = 0; i < rank; i++) RECORD(" %llu", (unsigned long long)dim[i]);
  RECORD(" strides");
  for (unsigned i = 0; i + 1 < rank; i++) RECORD(" %llu", (unsigned long long)strides[i]);
  RECORD(" corners");
  for (unsigned i = 0; i + 2 < rank; i++) RECORD(" %d:%d", lower[i], upper[i]);
  RECORD(" box %u %u every", channels, pixels);
  for (unsigned i = 0; i < rank; i++) RECORD(" %u", steps[i]);
  RECORD(" %d %d %d %d\n", (int)interleave, (int)swizzle, (int)l2, (int)fill);
  REFUSE_IF((CUresult)failing(__func__));
  REFUSE_IF(current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
  for (int i = 0; i < 128; i++) ((unsigned char *)map)[i] = (unsigned char)(i + (size_t)address);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                  void **extra) {
  REFUSE_IF(misplaced(function));
  launches++;
  if (quiet) return CUDA_SUCCESS;
  say("launch %p grid %u %u %u block %u %u %u shared %u stream %p", (void *)function,
      config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
      config->blockDimZ, config->sharedMemBytes, (void *)config->hStream);
  for (unsigned i = 0; i < config->numAttrs; i++) {
    say(" attribute %d ", (int)config->attrs[i].id);
    say_bytes(&config->attrs[i].value, 12);
  }
  for (int i = 0; i < layout_count; i++) {
    say(" %d@", (int)((size_t)params[i] % 64));
    say_bytes(params[i], layout[i]);
  }
  say("\n");
  return (CUresult)failing(__func__);
}
