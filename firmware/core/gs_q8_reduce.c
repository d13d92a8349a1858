#include "gs_q8_reduce.h"

#include "gs_q8.h"

/* Outputs that are made side by side, from neighbouring inputs. */
#define BLOCK 32u

static uint32_t min_of(uint32_t x, uint32_t y)
{
    return x < y ? x : y;
}

static void sum_block(const gs_q8_axes_t *axes, const int8_t *in, uint32_t size, int32_t sums[BLOCK])
{
    for (uint32_t c = 0; c < size; ++c) {
        sums[c] = 0;
    }
    for (uint32_t a = 0; a < axes->count[0]; ++a) {
        for (uint32_t b = 0; b < axes->count[1]; ++b) {
            const int8_t *row = in + a * axes->step[0] + b * axes->step[1];
            for (uint32_t c = 0; c < size; ++c) {
                sums[c] += row[c];
            }
        }
    }
}

/* The sum for one output whose terms stand in runs. */
static int32_t sum_runs(const gs_q8_axes_t *axes, const int8_t *in)
{
    int32_t sum = 0;
    for (uint32_t a = 0; a < axes->count[0]; ++a) {
        const int8_t *row = in + a * axes->step[0];
        for (uint32_t b = 0; b < axes->count[1]; ++b) {
            sum += row[b];
        }
    }
    return sum;
}

void gs_q8_sum(const gs_q8_sum_t *p, const int8_t *in, int8_t *out)
{
    const gs_q8_axes_t *axes = &p->axes;
    int32_t sums[BLOCK];
    for (uint32_t i = 0; i < axes->kept[0]; ++i) {
        for (uint32_t j = 0; j < axes->kept[1]; ++j) {
            const int8_t *row = in + i * axes->kept_step[0] + j * axes->kept_step[1];
            for (uint32_t first = 0; first < axes->run; first += BLOCK) {
                const uint32_t size = min_of(axes->run - first, BLOCK);
                if (axes->run == 1 && axes->step[1] == 1) {
                    sums[0] = sum_runs(axes, row);
                } else {
                    sum_block(axes, row + first, size, sums);
                }
                for (uint32_t c = 0; c < size; ++c) {
                    const int32_t value = gs_q8_rescale(sums[c] + p->offset, p->multiplier, p->shift);
                    *out++ = (int8_t)gs_q8_clamp(value + p->zero_point, -128, 127);
                }
            }
        }
    }
}

static void reduce_block(const gs_q8_reduce_t *p, const int8_t *in, uint32_t size, int8_t *out)
{
    int8_t best[BLOCK];
    const gs_q8_axes_t *axes = &p->axes;
    const int8_t flip = (int8_t)p->flip;
    for (uint32_t c = 0; c < size; ++c) {
        best[c] = -128;
    }
    for (uint32_t a = 0; a < axes->count[0]; ++a) {
        for (uint32_t b = 0; b < axes->count[1]; ++b) {
            const int8_t *row = in + a * axes->step[0] + b * axes->step[1];
            for (uint32_t c = 0; c < size; ++c) {
                const int8_t value = (int8_t)(row[c] ^ flip);
                best[c] = value > best[c] ? value : best[c];
            }
        }
    }
    for (uint32_t c = 0; c < size; ++c) {
        out[c] = (int8_t)(best[c] ^ flip);
    }
}

void gs_q8_reduce(const gs_q8_reduce_t *p, const int8_t *in, int8_t *out)
{
    const gs_q8_axes_t *axes = &p->axes;
    for (uint32_t i = 0; i < axes->kept[0]; ++i) {
        for (uint32_t j = 0; j < axes->kept[1]; ++j) {
            const int8_t *row = in + i * axes->kept_step[0] + j * axes->kept_step[1];
            for (uint32_t first = 0; first < axes->run; first += BLOCK) {
                reduce_block(p, row + first, min_of(axes->run - first, BLOCK), out + first);
            }
            out += axes->run;
        }
    }
}

/* The first place of the greatest in a run. */
static uint32_t first_best_of_run(const int8_t *in, uint32_t count, int8_t flip)
{
    int8_t best = -128;
    for (uint32_t i = 0; i < count; ++i) {
        const int8_t value = (int8_t)(in[i] ^ flip);
        best = value > best ? value : best;
    }
    uint32_t place = 0;
    while ((in[place] ^ flip) != best) {
        ++place;
    }
    return place;
}

static uint32_t first_best(const gs_q8_arg_t *p, const int8_t *in)
{
    if (p->run == 1) {
        return first_best_of_run(in, p->count, (int8_t)p->flip);
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->count; ++i) {
        if ((in[i * p->run] ^ p->flip) > (in[best * p->run] ^ p->flip)) {
            best = i;
        }
    }
    return best;
}

void gs_q8_arg(const gs_q8_arg_t *p, const int8_t *in, int32_t *out)
{
    for (uint32_t row = 0; row < p->rows; ++row) {
        for (uint32_t c = 0; c < p->run; ++c) {
            *out++ = (int32_t)first_best(p, in + c);
        }
        in += p->count * p->run;
    }
}

void gs_q8_arg_wide(const gs_q8_arg_t *p, const int8_t *in, int64_t *out)
{
    for (uint32_t row = 0; row < p->rows; ++row) {
        for (uint32_t c = 0; c < p->run; ++c) {
            *out++ = (int64_t)first_best(p, in + c);
        }
        in += p->count * p->run;
    }
}
