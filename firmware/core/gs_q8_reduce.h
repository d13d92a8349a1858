/* Sums, means, greatest and least values along axes, and where the greatest stands. */
#ifndef GS_Q8_REDUCE_H
#define GS_Q8_REDUCE_H

#include <stdint.h>

/* Output [i][j][c], c < run, is made of the inputs at i * kept_step[0] + j * kept_step[1] + c + a * step[0] +
   b * step[1], for all a and b below count[0] and count[1]. */
typedef struct {
    uint32_t kept[2];
    uint32_t kept_step[2];
    uint32_t run;
    uint32_t count[2];
    uint32_t step[2];
} gs_q8_axes_t;

typedef struct {
    gs_q8_axes_t axes; /* count[0] * count[1] is at most 2^23 */
    int32_t offset;    /* added to the sum: minus the input's zero point for each term */
    int32_t multiplier;
    int32_t shift;
    int32_t zero_point; /* of the output */
} gs_q8_sum_t;

typedef struct {
    gs_q8_axes_t axes; /* count[0] and count[1] are at least 1 */
    int32_t flip;      /* 0 for the greatest; -1 for the least, since ~x turns the order round */
} gs_q8_reduce_t;

typedef struct {
    uint32_t rows;
    uint32_t count; /* at least 1 */
    uint32_t run;
    int32_t flip; /* 0 for the greatest; -1 for the least */
} gs_q8_arg_t;

void gs_q8_sum(const gs_q8_sum_t *p, const int8_t *in, int8_t *out);
void gs_q8_reduce(const gs_q8_reduce_t *p, const int8_t *in, int8_t *out);

/* The first index of the greatest of in[rows][count][run] along the middle axis, to out[rows][run]. */
void gs_q8_arg(const gs_q8_arg_t *p, const int8_t *in, int32_t *out);
void gs_q8_arg_wide(const gs_q8_arg_t *p, const int8_t *in, int64_t *out);

#endif
