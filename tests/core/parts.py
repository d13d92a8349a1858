"""Build and call the core's small modules; memory has exactly its size, so that a sanitizer sees a step outside."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.native import CHECKED, FAST, FIRMWARE, find_compiler, shared_library
from gossamer.spec.constants import CONFIG_WORDS

LAYERS = ("model", "product", "perceptron", "dense", "conv", "depthwise", "pool", "norm", "nn", "optimizer")
MODULES = ("cobs", "crc", "index", "math", "quant", "rng", "sha256", *LAYERS)
MAPS = {"exp": 0, "log": 1, "sqrt": 2, "rint": 3, "abs": 4, "is_finite": 5}

F32 = NDArray[np.float32]

CDEF = """
void parts_map(int which, const float *x, float *y, size_t n);
void parts_draws(const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node, const uint32_t *indices,
                 uint32_t *out, size_t n);
uint32_t parts_below(uint32_t u, uint32_t n);
float parts_unit(uint32_t u);
bool parts_chance(uint32_t u, uint32_t p24);
void gs_rng_philox(const uint32_t seed[2], const uint32_t counter[4], uint32_t out[4]);
typedef struct {
    uint32_t seed[2];
    uint32_t stream;
    uint32_t round;
    uint32_t node;
    uint32_t block;
    uint32_t words[4];
} gs_rng_t;
void gs_rng_init(gs_rng_t *rng, const uint32_t seed[2], uint32_t stream, uint32_t round, uint32_t node);
uint32_t gs_rng_choose(gs_rng_t *rng, uint32_t n, uint32_t k, uint32_t index0, uint16_t *out);

uint32_t gs_crc32(uint32_t crc, const void *data, size_t len);
typedef struct { uint32_t state[8]; uint64_t len; uint8_t block[64]; } gs_sha256_t;
typedef struct { gs_sha256_t inner; gs_sha256_t outer; } gs_hmac_key_t;
void gs_sha256_init(gs_sha256_t *sha);
void gs_sha256_update(gs_sha256_t *sha, const uint8_t *data, size_t len);
void gs_sha256_final(gs_sha256_t *sha, uint8_t *out);
void gs_hmac_init(gs_hmac_key_t *key, const uint8_t *secret, size_t len);
void gs_hmac(const gs_hmac_key_t *key, const uint8_t *data, size_t len, uint8_t *out);

typedef struct {
    uint8_t *buffer;
    size_t capacity;
    size_t len;
    uint8_t left;
    bool zero_due;
    bool begun;
    bool bad;
    uint32_t garbage;
} gs_cobs_t;
size_t gs_cobs_encode(const uint8_t *data, size_t len, uint8_t *out);
void gs_cobs_init(gs_cobs_t *cobs, uint8_t *buffer, size_t capacity);
size_t parts_cobs(gs_cobs_t *cobs, const uint8_t *data, size_t len, uint8_t *frames, uint32_t *lengths);

float parts_quantize(const float *v, uint32_t n, uint32_t bits, uint8_t *packed);
void parts_dequantize(const uint8_t *packed, uint32_t n, float scale, uint32_t bits, float *v);
size_t parts_quant_bytes(uint32_t n, uint32_t bits);
bool gs_quant_is_valid(const uint8_t *packed, uint32_t count, uint32_t bits);

size_t gs_index_encode(const uint32_t *numbers, uint32_t count, uint32_t units, uint8_t *out, uint8_t *coding);
uint32_t parts_decode(uint8_t coding, const uint8_t *data, size_t len, uint32_t units, uint32_t *numbers, bool *ok);

typedef struct gs_model gs_model_t;
uint32_t gs_model_read(gs_model_t *model, const uint8_t *words, bool all_given);
size_t parts_model_bytes(void);
void parts_model_give(gs_model_t *model, const float *given);
void parts_model_look(const gs_model_t *model, uint32_t out[6]);
typedef struct {
    const uint8_t *features;
    const uint8_t *labels;
    uint32_t type;
    float scale;
    float offset;
} gs_samples_t;
typedef struct {
    const gs_samples_t *samples;
    const uint16_t *rows;
    uint32_t first;
    uint32_t count;
} gs_batch_t;
size_t gs_nn_scratch_floats(const gs_model_t *model, uint32_t batch);
void gs_nn_init(const gs_model_t *model, uint32_t init, const uint32_t seed[2], float *w);
float gs_nn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, gs_rng_t *dropout,
                     uint32_t first_draw, float *g, float *scratch);
void gs_nn_evaluate(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *loss, uint32_t *correct,
                    float *scratch);
typedef struct {
    uint32_t kind;
    float momentum;
    float beta1;
    float beta2;
    float epsilon;
    float weight_decay;
} gs_optimizer_t;
size_t gs_optimizer_floats(const gs_optimizer_t *optimizer, uint32_t parameters);
void gs_optimizer_reset(const gs_optimizer_t *optimizer, uint32_t parameters, float *state);
void gs_optimizer_step(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g,
                       float *state);
"""


@dataclass(frozen=True)
class Build:
    """Name a compiler and its flags; `checked` builds need a sanitizer's run time in the process."""

    compiler: str
    flags: tuple[str, ...]
    checked: bool = False

    @property
    def found(self) -> bool:
        return shutil.which(self.compiler) is not None


BUILDS = {
    "gcc-O0": Build("gcc", ("-O0",)),
    "gcc-O2-one-lane": Build("gcc", ("-O2", "-DGS_LANES=1")),
    "gcc-O2": Build("gcc", ("-O2",)),
    "gcc-fast": Build("gcc", FAST),
    "clang-O2": Build("clang", ("-O2",)),
    "clang-fast": Build("clang", FAST),
    "gcc-checked": Build("gcc", CHECKED, checked=True),
    "clang-checked": Build("clang", (*CHECKED, "-shared-libasan"), checked=True),
}


class Parts:
    """Call one build."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self._held: list[Any] = []

    def give(self, data: bytes | NDArray[Any], ctype: str = "uint8_t") -> Any:
        """Copy data into memory of exactly its size."""
        raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
        memory = self.room(len(raw) // self.ffi.sizeof(ctype), ctype)
        self.ffi.memmove(memory, raw, len(raw))
        return memory

    def room(self, count: int, ctype: str = "uint8_t") -> Any:
        return self.ffi.new(f"{ctype}[{count}]")

    def take(self, memory: Any, dtype: str = "u1", count: int | None = None) -> NDArray[Any]:
        return np.frombuffer(bytes(self.ffi.buffer(memory)), dtype)[:count]

    def map(self, name: str, x: F32) -> F32:
        """Apply a function of gs_math to every element."""
        given, result = self.give(x, "float"), self.room(x.size, "float")
        self.lib.parts_map(MAPS[name], given, result, x.size)
        return self.take(result, "f4")

    def model(self, words: Mapping[str, int], all_given: bool = False) -> tuple[Any, int]:
        """Read a model from those words of the image that tell of it; return it and the first bad word's place."""
        packed = struct.pack(f"<{len(CONFIG_WORDS)}I", *(words.get(name, 0) for name in CONFIG_WORDS))
        memory = self.room(self.lib.parts_model_bytes())
        model = self.ffi.cast("gs_model_t *", memory)
        self._held.append(memory)  # a cast pointer keeps nothing
        return model, self.lib.gs_model_read(model, self.give(packed), all_given)

    def look(self, model: Any) -> dict[str, int]:
        """Return what the core knows of a model."""
        names = ("parameters", "given", "dropped", "lowest", "values", "perceptron")
        out = self.room(len(names), "uint32_t")
        self.lib.parts_model_look(model, out)
        return dict(zip(names, out, strict=True))


@cache
def load(name: str) -> Parts:
    """Build the modules and load them."""
    build = BUILDS[name]
    sources = [FIRMWARE / "core" / f"gs_{module}.c" for module in MODULES]
    sources.append(Path(__file__).with_name("parts.c"))
    return Parts(*shared_library("parts", sources, CDEF, build.flags, compiler=find_compiler(build.compiler)))
