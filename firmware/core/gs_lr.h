/* The learning rate: constant, AdaStair, AdaLoss or both (SPEC.md 8). */
#ifndef GS_LR_H
#define GS_LR_H

#include "gs_config.h"

typedef struct {
    float lr;
    uint32_t stairs_done;
    uint32_t patience_index;
    uint32_t bad;
    float total;
    uint32_t count;
    float best;
    float ema;
} gs_lr_t;

void gs_lr_init(gs_lr_t *rate, const gs_config_t *config);

/* Take the stairs that are due at the start of a round. */
void gs_lr_begin_round(gs_lr_t *rate, const gs_config_t *config, uint32_t round);

/* See a round's training loss. */
void gs_lr_see_loss(gs_lr_t *rate, const gs_config_t *config, float loss);

#endif
