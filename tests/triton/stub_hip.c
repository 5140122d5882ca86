/* A stub of libamdhip64 that logs every call, as stub_cuda.c does for libcuda. */

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];
static size_t used;
static int fail_code, layout_count, layout[256];
static char fail_name[64];
static __thread int current;

const char *stub_log(void) { return text; }
void stub_clear(void) { used = 0; text[0] = 0; }
void stub_layout(int count, const int *sizes) {
  layout_count = count;
  memcpy(layout, sizes, count * sizeof *sizes);
}
void stub_fail(const char *name, int code, int after) {
  snprintf(fail_name, sizeof fail_name, "%s", name);
  fail_code = code;
}

#define SAY(...) (used += snprintf(text + used, sizeof text - used, __VA_ARGS__))
#define ENTER(...)                                                                             \
  SAY("%s", __func__); SAY("" __VA_ARGS__); SAY("\n");                                          \
  if (fail_code && !strcmp(fail_name, __func__)) return fail_code

hipError_t hipInit(unsigned flags) { ENTER(" %u", flags); return hipSuccess; }
hipError_t hipDriverGetVersion(int *found) { *found = 70125424; return hipSuccess; }
const char *hipGetErrorName(hipError_t code) { return "hipErrorInvalidImage"; }
const char *hipGetErrorString(hipError_t code) { return "device kernel image is invalid"; }
hipError_t hipGetDevice(int *device) { *device = current; return hipSuccess; }
hipError_t hipSetDevice(int device) { ENTER(" %d", device); current = device; return hipSuccess; }

hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count,
                               hipJitOption *options, void **values) {
  ENTER(" %u", count);
  *module = (hipModule_t)2;
  return hipSuccess;
}

hipError_t hipModuleUnload(hipModule_t module) { ENTER(); return hipSuccess; }

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  ENTER(" %s", name);
  *function = (hipFunction_t)3;
  return hipSuccess;
}

hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute which, hipFunction_t function) {
  *value = which == HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? 0 : -1;
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                 hipStream_t stream, void **params, void **extra) {
  ENTER(" %u %u %u block %u %u %u shared %u stream %p extra %p", gx, gy, gz, bx, by, bz, shared,
        (void *)stream, (void *)extra);
  for (int i = 0; i < layout_count; i++) {
    for (int b = 0; b < layout[i]; b++) SAY("%02x", ((unsigned char *)params[i])[b]);
    SAY("\n");
  }
  return hipSuccess;
}
