/* Multi-layer perceptrons (models of dense layers only), a whole batch at a time: faster than sample by sample, for the
   memory of the batch's activations. */
#ifndef GS_PERCEPTRON_H
#define GS_PERCEPTRON_H

#include "gs_model.h"
#include "gs_samples.h"

/* Floats of scratch for batches of up to `count`: the activations of all layers, and two panels (gs_product.h). Input
   features are converted on the way and never held as floats. */
size_t gs_perceptron_scratch_floats(const gs_model_t *model, uint32_t count);

/* Compute the activations; returns the logits [count][classes], in the scratch. */
float *gs_perceptron_forward(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *scratch);

/* Write the gradient g[P] from the one by the logits, which stands in their place (SPEC.md 3.6). */
void gs_perceptron_backward(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *g, float *scratch);

#endif
