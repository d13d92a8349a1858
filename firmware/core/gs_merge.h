/* Messages that wait, and the merge (SPEC.md 6.9, 6.10). */
#ifndef GS_MERGE_H
#define GS_MERGE_H

#include "gs_segment.h"

/* Messages in wire form, oldest first, each in a slot: u32 length, f32 weight in the merge, then the bytes. */
typedef struct {
    uint8_t *slots;
    size_t slot_bytes;
    uint32_t places;
    uint32_t *count;
} gs_fifo_t;

#define GS_FIFO_SLOT_HEADER_BYTES 8u

/* Append a message that fits a slot; true: the oldest had to go. */
bool gs_fifo_push(gs_fifo_t *fifo, const uint8_t *message, size_t len);
const uint8_t *gs_fifo_message(const gs_fifo_t *fifo, uint32_t place, size_t *len);
float gs_fifo_weight(const gs_fifo_t *fifo, uint32_t place);
void gs_fifo_set_weight(const gs_fifo_t *fifo, uint32_t place, float weight);

/* A merge in steps over num[P] and den[P]: begin, add every message in FIFO order, end. */
typedef struct {
    float *num;
    float *den; /* NaN: no message covered the coordinate yet */
    float own;  /* weight of w */
} gs_merge_t;

void gs_merge_begin(const gs_merge_t *merge, uint32_t parameters);
void gs_merge_add(const gs_merge_t *merge, const gs_config_t *config, uint32_t round, const gs_segment_t *segment,
                  float weight, const float *w);
void gs_merge_end(const gs_merge_t *merge, uint32_t parameters, float *w);

/* w with every covered coordinate half way to the segment's value. */
void gs_merge_trial(const gs_config_t *config, uint32_t round, const gs_segment_t *segment, const float *w,
                    float *trial);

/* The weight that `verified` gives, in [0, 1], from the validation losses without and with the message. */
float gs_merge_verified(float loss, float trial_loss);

#endif
