/* Train and evaluate a model in the exact order of SPEC.md 3.
   All memory is the caller's, nothing is kept between calls; labels are below the classes, rows below the shard's size.
   Perceptrons go a batch at a time, other models sample after sample, for the memory of one sample. */
#ifndef GS_NN_H
#define GS_NN_H

#include "gs_model.h"
#include "gs_perceptron.h"
#include "gs_rng.h"
#include "gs_samples.h"

/* Floats of scratch that the functions below need for batches of up to `batch` samples: the values of the layers, and what
   they work with. */
size_t gs_nn_scratch_floats(const gs_model_t *model, uint32_t batch);

/* Set w[P] to the initial parameters (SPEC.md 3.2); `init` is GS_INIT_... */
void gs_nn_init(const gs_model_t *model, uint32_t init, const uint32_t seed[2], float *w);

/* Write the gradient g[P] of a batch and return its loss (SPEC.md 3.5, 3.6). `dropout` stands at stream DROPOUT of the round
   and the node, `first_draw` is the batch's first draw, step * count * model->dropped; for models without DROPOUT they may be
   NULL and 0. */
float gs_nn_gradient(const gs_model_t *model, const float *w, const gs_batch_t *batch, gs_rng_t *dropout,
                     uint32_t first_draw, float *g, float *scratch);

/* Add the losses of a batch, one after the other, to *loss and its correct predictions to *correct. */
void gs_nn_evaluate(const gs_model_t *model, const float *w, const gs_batch_t *batch, float *loss, uint32_t *correct,
                    float *scratch);

#endif
