/* Train and evaluate a multi-layer perceptron in the exact order of SPEC.md 3.
   All memory is the caller's, nothing is kept between calls; labels are below dims[layers], rows below the shard's size. */
#ifndef GS_NN_H
#define GS_NN_H

#include <stddef.h>
#include <stdint.h>

#include "gs_spec.h"

typedef struct {
    uint32_t layers; /* 1..GS_LAYERS_MAX */
    uint32_t dims[GS_LAYERS_MAX + 1];
} gs_nn_t;

/* Samples in place: bytes that mean byte * scale + offset, or little-endian binary32. */
typedef struct {
    const uint8_t *features; /* [n][dims[0]] */
    const uint8_t *labels;   /* [n] */
    uint32_t type;           /* GS_FEATURE_U8 or GS_FEATURE_F32 */
    float scale;
    float offset;
} gs_samples_t;

/* Parameters of all layers, and of the layers below `layer`. */
uint32_t gs_nn_parameters(const gs_nn_t *nn);
uint32_t gs_nn_offset(const gs_nn_t *nn, uint32_t layer);

/* Floats of scratch that the functions below need for batches of up to `batch` samples: the activations of all layers,
   and two panels of 2 * GS_LANES columns (gs_nn.c). Input features are converted on the way and never held as floats. */
size_t gs_nn_scratch_floats(const gs_nn_t *nn, uint32_t batch);

/* Draw the initial weights w[P] (SPEC.md 3.2); `init` is GS_INIT_GLOROT or GS_INIT_HE. */
void gs_nn_init(const gs_nn_t *nn, uint32_t init, const uint32_t seed[2], float *w);

/* Write the gradient g[P] of the batch samples[rows[0..batch)] and return its loss (SPEC.md 3.5, 3.6). */
float gs_nn_gradient(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                     uint32_t batch, float *g, float *scratch);

/* Take one SGD step (SPEC.md 3.7). `velocity` is NULL exactly when momentum is 0. */
void gs_nn_update(uint32_t parameters, float *w, float *velocity, const float *g, float lr, float momentum,
                  float weight_decay);

/* Add the losses of `count` samples, one after the other, to *loss and their correct predictions to *correct.
   Sample i is rows[i], or first + i where rows is NULL; count is at most the batch of the scratch. */
void gs_nn_evaluate(const gs_nn_t *nn, const float *w, const gs_samples_t *samples, const uint16_t *rows,
                    uint32_t first, uint32_t count, float *loss, uint32_t *correct, float *scratch);

#endif
