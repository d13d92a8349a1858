/* Units of parameters: where they lie, how important they are, which rank first (SPEC.md 6.2 to 6.4). No tables. */
#ifndef GS_UNITS_H
#define GS_UNITS_H

#include <stdint.h>

#include "gs_nn.h"

/* Parameters first, first + stride, ...: `count` of them. */
typedef struct {
    uint32_t first;
    uint32_t stride;
    uint32_t count;
} gs_run_t;

#define GS_UNIT_RUNS_MAX 2u

/* Units of a model, and the parameters of its largest one; `kind` is GS_UNIT_.... */
uint32_t gs_units_count(const gs_nn_t *nn, uint32_t kind);
uint32_t gs_units_size_max(const gs_nn_t *nn, uint32_t kind);

/* Describe unit `number`, in the order of its parameters; returns the runs written. */
uint32_t gs_units_runs(const gs_nn_t *nn, uint32_t kind, uint32_t number, gs_run_t runs[GS_UNIT_RUNS_MAX]);

/* Turn the scores of all parameters, in place, into the importances of the units, values[0..units). */
void gs_units_weigh(const gs_nn_t *nn, uint32_t kind, uint32_t reduce, float *values);

/* Put the `wanted` first of 0..count-1, by value (no sign bits) greatest first and number, into order[0..wanted);
   the rest of order[0..count) is in any order. 1 <= wanted <= count. */
void gs_units_rank(const float *values, uint32_t *order, uint32_t count, uint32_t wanted);

#endif
