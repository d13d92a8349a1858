/* Learning-rate policies: constant, AdaStair, AdaLoss or both (SPEC.md 8).
   Source: "Adaptive Decentralized Federated Gossip Learning for Resource-Constrained IoT Devices", DistributedML 2023. */
#ifndef GS_LR_H
#define GS_LR_H

#include "gs_config.h"

/* What outlives a round; part of the checkpoint. */
typedef struct {
    float lr;
    uint32_t stairs; /* milestones done */
    uint32_t patience;
    uint32_t bad;
    float sum;
    uint32_t count;
    float best;
    float ema;
} gs_lr_t;

void gs_lr_init(gs_lr_t *lr, const gs_config_t *config);

/* Take the stairs due at the start of `round`. */
void gs_lr_begin(gs_lr_t *lr, const gs_config_t *config, uint32_t round);

/* Take the round's training loss, finite or not. */
void gs_lr_see(gs_lr_t *lr, const gs_config_t *config, float loss);

#endif
