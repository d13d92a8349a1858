/* CONV with a window of its own for every channel: groups = channels = outputs (SPEC.md 3.4, 3.6). The same sums as
   gs_conv, with the channels side by side. The contract of both functions is that of gs_dense.h. */
#ifndef GS_DEPTHWISE_H
#define GS_DEPTHWISE_H

#include "gs_below.h"
#include "gs_model.h"

size_t gs_depthwise_scratch_floats(const gs_layer_t *layer);
void gs_depthwise_forward(const gs_layer_t *layer, const float *w, const float *x, float *z, float *scratch);
void gs_depthwise_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                           const gs_below_t *below, float *scratch);

#endif
