/* Singular value decomposition filters: a dense layer whose outputs are filtered over time, with a state. */
#ifndef GS_Q8_SVDF_H
#define GS_Q8_SVDF_H

#include <stdint.h>

/* Each invocation brings one moment: every filter appends feature . in to its memory of `memory` moments, and a unit is
   the sum of its `rank` filters' memories weighted by `time`. Sums over int16 wrap, others stay within 32 bits;
   and a feature is clamped before the state's zero point is added, which then wraps: so does TensorFlow Lite Micro. */
typedef struct {
    const int8_t *feature;       /* [units * rank][inputs] */
    const int32_t *feature_bias; /* [units * rank]: minus the input's zero point times the sum of the row */
    const int8_t *time8;         /* [units * rank][memory], for a state of int8 */
    const int16_t *time16;       /* the same, for a state of int16 */
    const int32_t *bias;         /* [units], less the state's zero point times the sum of the unit's time weights */
    uint32_t batches;
    uint32_t inputs;
    uint32_t units;
    uint32_t rank;
    uint32_t memory; /* at least 1 */
    int32_t feature_multiplier;
    int32_t feature_shift;
    int32_t state_zero_point;
    int32_t multiplier;
    int32_t shift;
    int32_t zero_point;
} gs_q8_svdf_t;

/* in[batches][inputs] to out[batches][units], with state[batches][units * rank][memory]. */
void gs_q8_svdf8(const gs_q8_svdf_t *p, const int8_t *in, int8_t *out, int8_t *state);
void gs_q8_svdf16(const gs_q8_svdf_t *p, const int8_t *in, int8_t *out, int16_t *state);

#endif
