/* Samples in place, as a shard or an image holds them (SPEC.md 3.3). */
#ifndef GS_SAMPLES_H
#define GS_SAMPLES_H

#include <stdint.h>
#include <string.h>

#include "gs_spec.h"

/* Bytes that mean byte * scale + offset, or little-endian binary32. */
typedef struct {
    const uint8_t *features; /* [n][d_0] */
    const uint8_t *labels;   /* [n] */
    uint32_t type;           /* GS_FEATURE_U8 or GS_FEATURE_F32 */
    float scale;
    float offset;
} gs_samples_t;

/* Read `count` features from number `at` of all features on. */
static inline void gs_samples_read(const gs_samples_t *samples, size_t at, uint32_t count, float *restrict out)
{
    if (samples->type == GS_FEATURE_F32) {
        memcpy(out, samples->features + at * sizeof *out, count * sizeof *out);
        return;
    }
    const uint8_t *restrict bytes = samples->features + at;
    const float scale = samples->scale;
    const float offset = samples->offset;
    for (uint32_t i = 0; i < count; ++i) {
        out[i] = (float)bytes[i] * scale + offset;
    }
}

/* A batch: samples[rows[0..count)], or samples first, first + 1, ... where rows is NULL. */
typedef struct {
    const gs_samples_t *samples;
    const uint16_t *rows;
    uint32_t first;
    uint32_t count;
} gs_batch_t;

/* The number of sample `s` of a batch. */
static inline uint32_t gs_batch_row(const gs_batch_t *batch, uint32_t s)
{
    return batch->rows ? batch->rows[s] : batch->first + s;
}

#endif
