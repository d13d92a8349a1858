/* One experiment, as the image describes it (SPEC.md 11). */
#ifndef GS_CONFIG_H
#define GS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gs_err.h"
#include "gs_nn.h"

#define GS_PARAMETERS_MAX (1u << 24)
#define GS_CONFIG_NO_WORD UINT32_MAX

/* The words of the image, checked. Words that the policy or the schedule has no use for are not checked; for policies
   other than gist `threshold`, `unit` and the bases hold what SPEC.md 6 says of them. */
typedef struct {
    uint32_t seed[2];
    uint32_t nodes;
    uint32_t rounds;
    gs_nn_t nn;
    uint32_t parameters; /* P */
    uint32_t init;
    uint32_t batch;
    uint32_t local_steps;
    float lr;
    float momentum;
    float weight_decay;
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
    bool error_feedback;
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
    bool auth;
    uint32_t shard_max;
    uint32_t peers_max;
    uint32_t feature_type;
    float feature_scale;
    float feature_offset;
    uint32_t test_count;
    gs_samples_t test; /* in the image, not copied */
    uint32_t image_crc;
} gs_config_t;

/* Check an image and read its words. `config` points into `image` afterwards, so the image must outlive it.
   GS_ERR_CONFIG: *bad_word is the place (GS_CFG_...) of the first word out of range, else GS_CONFIG_NO_WORD. `bad_word`
   may be NULL. Other errors: GS_ERR_IMAGE_LENGTH, _IMAGE_MAGIC, _SPEC_VERSION, _WIRE_VERSION, _IMAGE_CRC. On error
   the contents of `config` mean nothing. */
gs_err_t gs_config_load(gs_config_t *config, const uint8_t *image, size_t len, uint32_t *bad_word);

/* Bytes of one stored sample's features. */
static inline size_t gs_config_row_bytes(const gs_config_t *config)
{
    return (size_t)config->nn.dims[0] * (config->feature_type == GS_FEATURE_U8 ? 1 : 4);
}

/* Most payload bytes of one frame. */
static inline uint32_t gs_config_room(const gs_config_t *config)
{
    return config->mtu - GS_HEADER_BYTES - (config->auth ? GS_TAG_BYTES : 0);
}

/* Parts that a node may offer in a round (SPEC.md 6.1). */
static inline uint32_t gs_config_parts(const gs_config_t *config)
{
    const bool many = config->policy == GS_POLICY_GIST || config->policy == GS_POLICY_SEGMENTED_GOSSIP;
    return many ? config->segments : 1;
}

#endif
