/* Sharing policies: what a node offers, to whom, and how a receiver mixes it (SPEC.md 6). */
#ifndef GS_POLICY_H
#define GS_POLICY_H

#include "gs_config.h"
#include "gs_rng.h"
#include "gs_wire.h"

/* A neighbour. What is counted about it starts anew with every new peer list; part of the checkpoint. */
typedef struct {
    gs_window_t window; /* of its data frames */
    uint32_t sends;     /* segments sent to it (spread `balanced`) */
    uint16_t id;
    uint16_t zero;
} gs_peer_t;

/* One send of gist. */
typedef struct {
    uint16_t segment;
    uint16_t place; /* in the peer list */
} gs_send_t;

/* What a policy sees of its node after local training, and the memory it may use. */
typedef struct {
    const gs_config_t *config;
    uint16_t id;
    uint32_t round;
    uint32_t n_train;
    float success;
    gs_peer_t *peers; /* [degree], ascending ids */
    uint32_t degree;
    const float *w;
    const float *start;     /* weights before training; gone once `order` is written, which lies in the same place */
    const float *reference; /* topk */
    uint32_t *cursor;       /* round_robin; kept over rounds */

    float *values;     /* [P], free; for gist's scores of gradients: their average */
    uint32_t *order;   /* [P] units, part by part, ascending within a part */
    uint32_t *ends;    /* [parts] part k is order[ends[k - 1] .. ends[k]); policies with an index */
    float *mass;       /* [segments] gist: probability of a segment */
    gs_send_t *sends;  /* [sends] gist */
    uint16_t *chosen;  /* [peers_max] */
    uint8_t *wanted;   /* [peers_max][(segments + 7) / 8] segmented_gossip: bit s: to be pulled from the peer */
    uint8_t *asked;    /* likewise: pulled by the peer */
    uint32_t part;     /* where `next` stands */
    uint32_t at;
    uint32_t copies; /* entries of `chosen` */
} gs_share_t;

/* The next copy to send. */
typedef struct {
    uint16_t part;
    uint16_t dst;
} gs_copy_t;

typedef struct {
    uint8_t coding; /* GS_CODING_BITMAP stands for bitmap or delta, whichever is shorter */

    /* Rank, draw, cut: all that precedes the first copy. Called with degree > 0 and share->part = at = 0. */
    void (*prepare)(gs_share_t *share);

    /* Give the copies, ascending parts; false: none is left. Not called before SYNC where there is `request`. */
    bool (*next)(gs_share_t *share, gs_copy_t *copy);

    /* Write the next PULL (2 + 2 * segments bytes at most) and return its length; 0: none is left. NULL: no pulls. */
    size_t (*request)(gs_share_t *share, uint16_t *dst, uint8_t *payload);

    /* The weight field of the node's messages; its own weight in a merge, `others` being the sum of its messages'
       weights; and the weight of a message by its weight field. */
    float (*weight)(const gs_share_t *share);
    float (*own_weight)(const gs_share_t *share, float others);
    float (*message_weight)(const gs_share_t *share, float field);
} gs_policy_t;

/* The policy of an experiment; config->policy is in range. */
const gs_policy_t *gs_policy_of(const gs_config_t *config);

/* Tables, one a policy. */
extern const gs_policy_t gs_policy_gist;
extern const gs_policy_t gs_policy_segmented;
extern const gs_policy_t gs_policy_gossipfl;
extern const gs_policy_t gs_policy_dpsgd;
extern const gs_policy_t gs_policy_epidemic;
extern const gs_policy_t gs_policy_topk;
extern const gs_policy_t gs_policy_fedavg;
extern const gs_policy_t gs_policy_local;

/* Pieces that several policies are made of. */
void gs_policy_prepare_all(gs_share_t *share);                   /* every peer gets part 0 */
bool gs_policy_next_chosen(gs_share_t *share, gs_copy_t *copy);  /* chosen[0..copies) get part 0 */
float gs_policy_one(const gs_share_t *share);
float gs_policy_own_one(const gs_share_t *share, float others);
float gs_policy_message_one(const gs_share_t *share, float field);
float gs_policy_n_train(const gs_share_t *share);

/* exp(weight * log(success_base)) where the base is above 1 (SPEC.md 6.9). */
float gs_policy_sharpen(const gs_config_t *config, float weight);

#endif
