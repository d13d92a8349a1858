/* DENSE, one sample at a time (SPEC.md 3.4, 3.6). Perceptrons go by batches instead: gs_perceptron.h.
   The layers of gs_dense, gs_conv, gs_depthwise, gs_pool and gs_norm have two functions each:

   forward   writes z from the input x; ReLU is the caller's.
   backward  reads dz and x; adds the sample's share to g (W, then b), unless that is NULL; hands the gradient by the input to
             `below`, unless that is NULL. below->values is x, which is lost by it.

   `w` is the layer's W, then its b. Both may use gs_..._scratch_floats(layer) of scratch, where there is such a function. */
#ifndef GS_DENSE_H
#define GS_DENSE_H

#include "gs_below.h"
#include "gs_model.h"

void gs_dense_forward(const gs_layer_t *layer, const float *w, const float *x, float *z);
void gs_dense_backward(const gs_layer_t *layer, const float *w, const float *dz, const float *x, float *g,
                       const gs_below_t *below);

#endif
