/* The experiment image (SPEC.md 11): read-only, the same for all nodes, used in place. */
#ifndef GS_CONFIG_H
#define GS_CONFIG_H

#include "gs_err.h"
#include "gs_model.h"
#include "gs_optimizer.h"
#include "gs_samples.h"

typedef struct {
    uint32_t image_crc;
    uint32_t seed[2];
    uint32_t nodes;
    uint32_t rounds;
    gs_model_t model;
    uint32_t init;
    uint32_t batch;
    uint32_t local_steps;
    gs_optimizer_t optimizer;
    float lr;
    uint32_t val_permille;
    uint32_t eval_every;
    uint32_t lr_policy;
    float lr_floor;
    uint32_t stair_count;
    uint32_t stair_at[GS_MILESTONES_MAX];
    float stair_factor;
    uint32_t loss_count;
    uint32_t loss_patience[GS_MILESTONES_MAX];
    float loss_factor;
    uint32_t loss_reference;
    float loss_ema;
    uint32_t policy;
    uint32_t bits;
    uint32_t error_feedback;
    uint32_t segments;
    uint32_t sends;
    uint32_t threshold;
    uint32_t fifo;
    uint32_t unit;
    uint32_t score;
    uint32_t reduce;
    float score_ema;
    float base;
    uint32_t spread;
    uint32_t success;
    float success_base;
    uint32_t pulls;
    uint32_t ratio24;
    uint32_t fanout;
    uint32_t top;
    float max_norm;
    uint32_t mtu;
    uint32_t reassembly;
    uint32_t auth;
    uint32_t shard_max;
    uint32_t peers_max;
    uint32_t row_bytes; /* of one sample's features */
    gs_samples_t test;  /* in the image */
    uint32_t test_count;
} gs_config_t;

/* Check an image and read it. The image must stay in place, 4-byte aligned, as long as the config is used.
   With GS_ERR_CONFIG, *bad_word is the place (GS_CFG_...) of the first word that is out of range. */
gs_err_t gs_config_load(gs_config_t *config, const uint8_t *image, size_t len, uint32_t *bad_word);

#endif
