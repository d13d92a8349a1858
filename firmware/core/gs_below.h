/* Where a layer's gradient by its input goes: over the input itself, because all that reads it has been passed on the way
   back. Only the ReLU that made it is still to come, and that looks at each number once, here. */
#ifndef GS_BELOW_H
#define GS_BELOW_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    float *values;       /* the input; becomes the gradient by what came before its ReLU */
    const float *others; /* the gradient by the input of layers further up, NULL: none */
    bool relu;
} gs_below_t;

/* Take the gradients by values at, at + 1, ... (SPEC.md 3.6); each value once. */
static inline void gs_below_take(const gs_below_t *below, size_t at, const float *gradients, size_t count)
{
    float *values = below->values + at;
    const float *others = below->others ? below->others + at : NULL;
    for (size_t i = 0; i < count; ++i) {
        const float sum = others ? others[i] + gradients[i] : gradients[i];
        values[i] = !below->relu || values[i] > 0.0f ? sum : 0.0f;
    }
}

#endif
