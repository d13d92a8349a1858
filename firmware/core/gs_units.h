/* Units of parameters, their importance and order (SPEC.md 6.2 to 6.4), and walks over coordinates. */
#ifndef GS_UNITS_H
#define GS_UNITS_H

#include <stdbool.h>

#include "gs_index.h"
#include "gs_model.h"
#include "gs_rng.h"

/* One unit: `count` parameters from `first`, `stride` apart, then `extra` unless it is UINT32_MAX. */
typedef struct {
    uint32_t first;
    uint32_t stride;
    uint32_t count;
    uint32_t extra;
} gs_unit_t;

uint32_t gs_units_count(const gs_model_t *model, uint32_t kind);
uint32_t gs_units_largest(const gs_model_t *model, uint32_t kind);
gs_unit_t gs_units_get(const gs_model_t *model, uint32_t kind, uint32_t number);

static inline uint32_t gs_unit_size(const gs_unit_t *unit)
{
    return unit->count + (unit->extra != UINT32_MAX);
}

/* Importance of a unit from the scores[P] of its parameters; `reduce` is GS_REDUCE_... */
float gs_units_importance(const gs_unit_t *unit, const float *scores, uint32_t reduce);

/* Sort numbers[count] by keys[number], not negative, greatest first, ties lower number first; ascending without keys. */
void gs_units_sort(uint32_t *numbers, uint32_t count, const float *keys);

/* A walk over the coordinates of a part, in the order of its values. */
typedef struct {
    const gs_model_t *model;
    uint32_t kind; /* of units */
    uint32_t source;
    gs_unit_t unit; /* what is left of the current one */
    uint32_t next;
    uint32_t end;
    const uint32_t *list;
    gs_index_t index;
    gs_rng_t rng;
    uint32_t ratio24;
} gs_walk_t;

/* Coordinates first <= c < end. */
void gs_walk_range(gs_walk_t *walk, uint32_t first, uint32_t end);

/* Coordinates below `end` whose draw is under `ratio24`; `rng` is at stream MASK. */
void gs_walk_mask(gs_walk_t *walk, uint32_t end, const gs_rng_t *rng, uint32_t ratio24);

/* The parameters of the units in list[count]. */
void gs_walk_list(gs_walk_t *walk, const gs_model_t *model, uint32_t kind, const uint32_t *list, uint32_t count);

/* The parameters of the units in an encoded index. After the walk, gs_walk_ok tells whether it was well formed. */
void gs_walk_index(gs_walk_t *walk, const gs_model_t *model, uint32_t kind, uint8_t coding, const uint8_t *data,
                   size_t len);

bool gs_walk_next(gs_walk_t *walk, uint32_t *coordinate);
bool gs_walk_ok(const gs_walk_t *walk);

#endif
