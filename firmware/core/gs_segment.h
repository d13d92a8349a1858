/* The message SEGMENT: one part of a model (SPEC.md 5, 6.8, 10.1). */
#ifndef GS_SEGMENT_H
#define GS_SEGMENT_H

#include "gs_config.h"
#include "gs_index.h"
#include "gs_rng.h"
#include "gs_units.h"

typedef struct {
    uint8_t coding;
    uint8_t bits;
    uint16_t part;
    float weight;
    float scale;
    const uint8_t *index; /* in the message */
    uint32_t index_len;
    const uint8_t *values; /* in the message */
    uint32_t count;        /* of values */
} gs_segment_t;

/* Bytes of the largest legal SEGMENT of an experiment. */
uint64_t gs_segment_bytes_max(const gs_config_t *config);

/* Read a message; false if no encoder of this experiment writes it. `segment` points into `data`. */
bool gs_segment_parse(const gs_config_t *config, uint32_t round, const uint8_t *data, size_t len,
                      gs_segment_t *segment);

/* Whether weight, values and norm are within bounds (SPEC.md 6.8). */
bool gs_segment_is_sound(const gs_config_t *config, const gs_segment_t *segment);

/* Walk the coordinates of a segment in the order of its values. */
typedef struct {
    const gs_config_t *config;
    uint8_t coding;
    gs_index_t index;
    gs_run_t runs[GS_UNIT_RUNS_MAX];
    uint32_t run;
    uint32_t run_count;
    gs_rng_t mask;
    uint32_t at;
} gs_cover_t;

void gs_cover_init(gs_cover_t *cover, const gs_config_t *config, uint32_t round, const gs_segment_t *segment);
bool gs_cover_next(gs_cover_t *cover, gs_run_t *run);

/* What is encoded. `units` [unit_count] ascending for policies with an index, else NULL and 0. Where `residual` is given,
   w + residual is sent and the rest kept there; where `reference` is given, it takes what receivers will read. */
typedef struct {
    uint16_t part;
    float weight;
    const uint32_t *units;
    uint32_t unit_count;
    const float *w;
    float *residual;
    float *reference;
} gs_offer_t;

/* Write the message into `out`, which has room for gs_segment_bytes_max(); returns its bytes, 0 for an empty part. */
size_t gs_segment_encode(const gs_config_t *config, uint32_t round, const gs_offer_t *offer, uint8_t *out);

#endif
