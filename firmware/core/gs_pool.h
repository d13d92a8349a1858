/* POOL_MAX and POOL_AVERAGE (SPEC.md 3.4, 3.6); the contract of both functions is that of gs_dense.h, but that `dz` is lost. */
#ifndef GS_POOL_H
#define GS_POOL_H

#include "gs_below.h"
#include "gs_model.h"

size_t gs_pool_scratch_floats(const gs_layer_t *layer);
void gs_pool_forward(const gs_layer_t *layer, const float *x, float *z);
void gs_pool_backward(const gs_layer_t *layer, float *dz, const float *x, const gs_below_t *below, float *scratch);

#endif
