/* SGD and ADAM (SPEC.md 3.7). */
#ifndef GS_OPTIMIZER_H
#define GS_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "gs_spec.h"

typedef struct {
    uint32_t kind;  /* GS_OPTIMIZER_... */
    float momentum; /* SGD */
    float beta1;    /* ADAM, and the next two */
    float beta2;
    float epsilon;
    float weight_decay;
} gs_optimizer_t;

/* Floats of what lives from step to step, across rounds: SGD: none without momentum, else v[P]; ADAM: pow1, pow2, m[P], v[P]. */
size_t gs_optimizer_floats(const gs_optimizer_t *optimizer, uint32_t parameters);

/* Set that to its start. */
void gs_optimizer_reset(const gs_optimizer_t *optimizer, uint32_t parameters, float *state);

/* Take one step: w[P] moves by the gradient g[P]. */
void gs_optimizer_step(const gs_optimizer_t *optimizer, uint32_t parameters, float lr, float *w, const float *g,
                       float *state);

#endif
