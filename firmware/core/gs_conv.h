/* CONV (SPEC.md 3.4, 3.6); the contract of both functions is that of gs_dense.h. */
#ifndef GS_CONV_H
#define GS_CONV_H

#include "gs_below.h"
#include "gs_model.h"

size_t gs_conv_scratch_floats(const gs_layer_t *layer);
void gs_conv_forward(const gs_layer_t *layer, const float *w, const float *x, float *z, float *scratch);
void gs_conv_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                      const gs_below_t *below, float *scratch);

#endif
