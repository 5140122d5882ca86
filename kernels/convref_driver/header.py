"""A C header that loads and launches exported kernels with nothing but the CUDA driver API."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .exported import Address, Export, Invocation, Map
from .kernel import DEFAULT_SHARED, PORTABLE_CLUSTER
from .manifest import pack
from .tensormap import FAULTY, Numbers, geometry

# The C type that holds the bits of a number, by its bytes.
BITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def header(export: Export) -> str:
    """Return the header: `NAME_load`, `NAME_launch` and `NAME_unload`, in C11 or C++11."""
    guard = f"{export.name.upper()}_H"
    lines = [*_comment(export), f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#include <cuda.h>", "#include <stdint.h>", ""]
    lines += [*_constants(export), "", *_load(export), "", *_launch(export), "", "#endif"]
    return "\n".join(lines) + "\n"


def _c_identifier(name: str) -> str:
    """Return the identifier of a tensor.

    >>> _c_identifier("y.parts")
    'y_parts'
    """
    return name.replace(".", "_").replace(" ", "_")


def _comment(export: Export) -> Iterator[str]:
    yield f"/* {export.line} for {export.arch}"
    yield f"   {export.made_by}"
    yield ""
    yield "   The caller makes a context current and allocates:"
    for name, m in export.tensors.items():
        form = f"{m.dtype} {list(m.shape)}, strides {list(m.strides)}"
        where = f"{m.bytes} bytes at a multiple of {m.align}"
        yield f"   {_c_identifier(name)}: {m.use}, {form}, {where}"
    yield "*/"


def _constants(export: Export) -> Iterator[str]:
    name, count = export.name, len(export.images)
    for tensor, memory in export.tensors.items():
        yield f"#define {name.upper()}_{_c_identifier(tensor).upper()}_BYTES {memory.bytes}"
    yield f"#define {name.upper()}_IMAGES {count}"
    yield ""
    files = ", ".join(f'"{image}.cubin"' for image in export.images)
    yield f"static const char *const {name}_files[] = {{{files}}};"
    yield ""
    yield "typedef struct {"
    yield f"  CUmodule modules[{count}];"
    yield f"  CUfunction functions[{count}];"
    yield "  int driver;"
    yield f"}} {name}_kernels;"


def _load(export: Export) -> Iterator[str]:
    """Yield the functions that load and unload, as `convref_driver.load` does."""
    name = export.name
    first = {launch.image: launch.manifest for launch in reversed(export.launches)}
    manifests = [first[image] for image in export.images]
    names = ", ".join(f'"{m.name}"' for m in manifests)
    spread = ", ".join(str(int(_blocks(m.cluster) > PORTABLE_CLUSTER)) for m in manifests)
    yield f"""/* images[i]: the bytes of {name}_files[i], or its PTX, which ends in a zero byte. */
static inline CUresult {name}_load({name}_kernels *kernels, const void *const *images) {{
  static const char *const names[] = {{{names}}};
  static const int shared[] = {{{", ".join(str(m.shared) for m in manifests)}}};
  static const int large_clusters[] = {{{spread}}};
  CUresult code = cuDriverGetVersion(&kernels->driver);
  for (int i = 0; i < {name.upper()}_IMAGES; i++) {{
    int fixed = 0;
    CUfunction *found = &kernels->functions[i];
    if (!code) code = cuModuleLoadData(&kernels->modules[i], images[i]);
    if (!code) code = cuModuleGetFunction(found, kernels->modules[i], names[i]);
    if (!code) code = cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *found);
    if (!code && shared[i] && shared[i] + fixed > {DEFAULT_SHARED})
      code = cuFuncSetAttribute(*found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared[i]);
    if (!code && large_clusters[i])
      code = cuFuncSetAttribute(*found, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  }}
  return code;
}}

static inline CUresult {name}_unload({name}_kernels *kernels) {{
  CUresult code = CUDA_SUCCESS;
  for (int i = 0; i < {name.upper()}_IMAGES && !code; i++)
    code = cuModuleUnload(kernels->modules[i]);
  return code;
}}"""


def _blocks(cluster: tuple[int, int, int]) -> int:
    x, y, z = cluster
    return x * y * z


def _launch(export: Export) -> Iterator[str]:
    pointers = "".join(f", CUdeviceptr {_c_identifier(tensor)}" for tensor in export.tensors)
    yield "/* Waits for nothing. */"
    yield f"static inline CUresult {export.name}_launch("
    yield f"    const {export.name}_kernels *kernels{pointers}, CUstream stream) {{"
    yield "  CUresult code = CUDA_SUCCESS;"
    for launch in export.launches:
        if 0 not in launch.grid:
            yield from (f"  {line}" for line in _invocation(export, launch))
    yield "  return code;"
    yield "}"


def _invocation(export: Export, launch: Invocation) -> Iterator[str]:
    manifest, places = launch.manifest, []
    yield f"if (!code) {{ /* {manifest.name} */"
    for i, (kind, value) in enumerate(zip(manifest.parameters, launch.arguments, strict=True)):
        places.append(f"&{_c_identifier(value.tensor)}" if isinstance(value, Address) else f"&a{i}")
        if isinstance(value, Map):
            yield from (f"  {line}" for line in _map(i, value))
        elif not isinstance(value, Address):
            yield f"  {_number(f'a{i}', kind, value)}"
    yield f"  const void *arguments[] = {{{', '.join(places) or '0'}}};"
    count = yield from _attributes(manifest.cluster)
    sizes = ", ".join(map(str, (*launch.grid, *manifest.threads, manifest.shared)))
    listed = "attributes" if count else "0"
    yield f"  CUlaunchConfig config = {{{sizes}, stream, {listed}, {count}}};"
    function = f"kernels->functions[{export.images.index(launch.image)}]"
    yield f"  if (!code) code = cuLaunchKernelEx(&config, {function}, (void **)arguments, 0);"
    yield "}"


def _attributes(cluster: tuple[int, int, int]) -> Iterator[str]:
    """Yield the attributes of a launch in clusters, if it is one; return how many there are."""
    if cluster == (1, 1, 1):
        return 0
    yield "  CUlaunchAttribute attributes[2] = {{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};"
    for axis, size in zip("xyz", cluster):
        yield f"  attributes[0].value.clusterDim.{axis} = {size};"
    yield "  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;"
    yield (
        "  attributes[1].value.clusterSchedulingPolicyPreference ="
        " CU_CLUSTER_SCHEDULING_POLICY_SPREAD;"
    )
    return 2


def _number(name: str, kind: str, value: Any) -> str:
    """Return the definition of an argument, by its bits.

    >>> _number("a3", "f32", 0.5)
    'const uint32_t a3 = 0x3f000000u; /* f32 0.5 */'
    """
    data = pack(name, kind, value)
    bits = int.from_bytes(data, "little")
    suffix = "ull" if len(data) == struct.calcsize("<Q") else "u"
    return f"const {BITS[len(data)]} {name} = {bits:#x}{suffix}; /* {kind} {value} */"


def _map(i: int, value: Map) -> Iterator[str]:
    """Yield the statements that encode a tensor map, as `convref_driver.encode` does."""
    tensor, *form = value
    made, places = geometry(*form), []
    yield f"CUtensorMap a{i};"
    for n, item in enumerate(made.after):
        if isinstance(item, Numbers):
            yield f"const {item.type} a{i}_{n}[] = {{{', '.join(map(str, item.values))}}};"
            places.append(f"a{i}_{n}")
        else:
            places.append(str(item))
    *rest, interleave, swizzle, promotion, fill = places
    rest += [f"(CUtensorMapInterleave){interleave}", f"(CUtensorMapSwizzle){swizzle}"]
    rest += [f"(CUtensorMapL2promotion){promotion}", f"(CUtensorMapFloatOOBfill){fill}"]
    code, rank = made.before
    yield (
        f"if (!code) code = {made.function}(&a{i}, (CUtensorMapDataType){code}, {rank},"
        f" (void *)(uintptr_t){_c_identifier(tensor)}, {', '.join(rest)});"
    )
    if made.small:  # as `tensormap._without_bit`
        yield f"if (kernels->driver <= {FAULTY}) ((unsigned char *)&a{i})[10] &= 0xdf;"
