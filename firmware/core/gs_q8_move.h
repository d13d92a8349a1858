/* Kernels that move elements and compute nothing. All counts, steps and offsets are in bytes, so one kernel serves every
   type; the generator merges what is contiguous into runs. Buffers need no alignment and do not overlap. */
#ifndef GS_Q8_MOVE_H
#define GS_Q8_MOVE_H

#include <stdint.h>

#define GS_Q8_LOOPS 6
#define GS_Q8_JOINED 4

/* Runs on a grid: loops over both tensors, the last one innermost; loops that are not needed count to 1. */
typedef struct {
    uint32_t counts[GS_Q8_LOOPS];
    int32_t in_steps[GS_Q8_LOOPS];
    int32_t out_steps[GS_Q8_LOOPS];
    uint32_t in_start; /* where the first run is */
    uint32_t out_start;
    uint32_t run_bytes;
    uint32_t fill_bytes; /* so much of the output is set to `fill` first; 0 when the runs cover it */
    int32_t fill;
} gs_q8_copy_t;

/* Pixels of images, of which one tensor has its own order: pixel (y, x) of image n is at
   n * image_bytes + rows[y] + columns[x] there, and follows the one before it in the other tensor. */
typedef struct {
    const uint32_t *rows;
    const uint32_t *columns;
    uint32_t images;
    uint32_t height;
    uint32_t width;
    uint32_t image_bytes;
    uint32_t pixel_bytes;
    uint32_t fill_bytes; /* as above; gs_q8_scatter only */
    int32_t fill;
} gs_q8_grid_t;

/* In each row of the output one run of every input. */
typedef struct {
    uint32_t rows;
    uint32_t row_bytes;               /* the sum of the runs */
    uint32_t run_bytes[GS_Q8_JOINED]; /* 0 for an input that is not used */
} gs_q8_join_t;

void gs_q8_copy(const gs_q8_copy_t *p, const void *in, void *out);

/* The input has its own order: each of its pixels is taken any number of times. */
void gs_q8_gather(const gs_q8_grid_t *p, const void *in, void *out);

/* The output has its own order: each of its pixels is written once at most. */
void gs_q8_scatter(const gs_q8_grid_t *p, const void *in, void *out);

void gs_q8_join(const gs_q8_join_t *p, const void *in0, const void *in1, const void *in2, const void *in3, void *out);

#endif
