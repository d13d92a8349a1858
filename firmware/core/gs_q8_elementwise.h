/* Functions of two values, element by element, with broadcasting.

   Each kernel walks a gs_q8_nest_t. `out` may be an input that is not repeated: it is read before it is written. */
#ifndef GS_Q8_ELEMENTWISE_H
#define GS_Q8_ELEMENTWISE_H

#include <stdint.h>

/* Four loops over the output, the last one fastest; a step says by how many elements an input advances when an index
   does, 0 to repeat. The last steps are 1 and 1, 1 and 0, or 0 and 1; both 0 for a last loop of one. */
typedef struct {
    uint32_t dims[4];
    uint32_t step0[4];
    uint32_t step1[4];
} gs_q8_nest_t;

/* How one int8 input comes to the scale of the sum: ((x - zero_point) << 20) * multiplier * 2^(-shift - 31). */
typedef struct {
    int32_t zero_point;
    int32_t multiplier; /* 0..2^31 - 1 */
    int32_t shift;      /* to the right, 0..31 */
} gs_q8_term_t;

typedef struct {
    gs_q8_nest_t nest;
    gs_q8_term_t term0;
    gs_q8_term_t term1;
    gs_q8_term_t sum; /* the sum's own way to the output, whose zero point is added */
    int32_t least;
    int32_t greatest;
} gs_q8_add_t;

typedef struct {
    gs_q8_nest_t nest;
    int32_t zero_point0;
    int32_t zero_point1;
    int32_t zero_point; /* of the output */
    int32_t multiplier;
    int32_t shift; /* to the left, -31..30 */
    int32_t least;
    int32_t greatest;
} gs_q8_mul_t;

typedef struct {
    gs_q8_nest_t nest; /* input 1 is the slope */
    int32_t zero_point0;
    int32_t zero_point1;
    int32_t zero_point;
    int32_t multiplier; /* of what is at least 0 */
    int32_t shift;
    int32_t slope_multiplier; /* of the product with the slope */
    int32_t slope_shift;
} gs_q8_prelu_t;

typedef struct {
    gs_q8_nest_t nest;
    int32_t flip; /* 0 for the maximum; -1 for the minimum, since ~x turns the order round */
} gs_q8_extreme_t;

void gs_q8_add(const gs_q8_add_t *p, const int8_t *in0, const int8_t *in1, int8_t *out);
void gs_q8_sub(const gs_q8_add_t *p, const int8_t *in0, const int8_t *in1, int8_t *out);
void gs_q8_mul(const gs_q8_mul_t *p, const int8_t *in0, const int8_t *in1, int8_t *out);
void gs_q8_prelu(const gs_q8_prelu_t *p, const int8_t *in0, const int8_t *in1, int8_t *out);
void gs_q8_extreme(const gs_q8_extreme_t *p, const int8_t *in0, const int8_t *in1, int8_t *out);

#endif
