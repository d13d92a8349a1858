#include "gs_q8_move.h"

#include <stddef.h>
#include <string.h>

/* From this many bytes on, a call of memcpy costs less than a loop. */
#define LONG_RUN 64

/* memcpy of a constant size is a load and a store where the processor needs no alignment. */
static inline void copy_run(uint8_t *out, const uint8_t *in, uint32_t run_bytes)
{
    if (run_bytes >= LONG_RUN) {
        memcpy(out, in, run_bytes);
        return;
    }
    uint32_t i = 0;
    for (; i + 8 <= run_bytes; i += 8) {
        memcpy(out + i, in + i, 8);
    }
    for (; i < run_bytes; i++) {
        out[i] = in[i];
    }
}

/* Run the innermost loop. */
static void copy_line(const gs_q8_copy_t *p, const uint8_t *in, uint8_t *out)
{
    const uint32_t count = p->counts[GS_Q8_LOOPS - 1];
    const ptrdiff_t in_step = p->in_steps[GS_Q8_LOOPS - 1];
    const ptrdiff_t out_step = p->out_steps[GS_Q8_LOOPS - 1];
    if (p->run_bytes == 1) {
        for (uint32_t i = 0; i < count; i++) {
            out[(ptrdiff_t)i * out_step] = in[(ptrdiff_t)i * in_step];
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        copy_run(out + (ptrdiff_t)i * out_step, in + (ptrdiff_t)i * in_step, p->run_bytes);
    }
}

void gs_q8_copy(const gs_q8_copy_t *p, const void *in, void *out)
{
    memset(out, p->fill, p->fill_bytes);
    ptrdiff_t from = (ptrdiff_t)p->in_start;
    ptrdiff_t to = (ptrdiff_t)p->out_start;
    uint32_t index[GS_Q8_LOOPS - 1] = {0};
    for (;;) {
        copy_line(p, (const uint8_t *)in + from, (uint8_t *)out + to);
        int loop = GS_Q8_LOOPS - 2;
        for (; loop >= 0; loop--) {
            from += p->in_steps[loop];
            to += p->out_steps[loop];
            if (++index[loop] < p->counts[loop]) {
                break;
            }
            index[loop] = 0;
            from -= (ptrdiff_t)p->in_steps[loop] * (ptrdiff_t)p->counts[loop];
            to -= (ptrdiff_t)p->out_steps[loop] * (ptrdiff_t)p->counts[loop];
        }
        if (loop < 0) {
            return;
        }
    }
}

void gs_q8_gather(const gs_q8_grid_t *p, const void *in, void *out)
{
    const uint8_t *image = in;
    uint8_t *to = out;
    for (uint32_t n = 0; n < p->images; n++) {
        for (uint32_t y = 0; y < p->height; y++) {
            const uint8_t *row = image + p->rows[y];
            for (uint32_t x = 0; x < p->width; x++) {
                copy_run(to, row + p->columns[x], p->pixel_bytes);
                to += p->pixel_bytes;
            }
        }
        image += p->image_bytes;
    }
}

void gs_q8_scatter(const gs_q8_grid_t *p, const void *in, void *out)
{
    memset(out, p->fill, p->fill_bytes);
    const uint8_t *from = in;
    uint8_t *image = out;
    for (uint32_t n = 0; n < p->images; n++) {
        for (uint32_t y = 0; y < p->height; y++) {
            uint8_t *row = image + p->rows[y];
            for (uint32_t x = 0; x < p->width; x++) {
                copy_run(row + p->columns[x], from, p->pixel_bytes);
                from += p->pixel_bytes;
            }
        }
        image += p->image_bytes;
    }
}

void gs_q8_join(const gs_q8_join_t *p, const void *in0, const void *in1, const void *in2, const void *in3, void *out)
{
    const uint8_t *const inputs[GS_Q8_JOINED] = {in0, in1, in2, in3};
    uint8_t *start = out;
    for (uint32_t i = 0; i < GS_Q8_JOINED; i++) {
        const uint32_t run_bytes = p->run_bytes[i];
        const uint8_t *from = inputs[i];
        uint8_t *to = start;
        for (uint32_t row = 0; run_bytes > 0 && row < p->rows; row++) {
            copy_run(to, from, run_bytes);
            from += run_bytes;
            to += p->row_bytes;
        }
        start += run_bytes;
    }
}
