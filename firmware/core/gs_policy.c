#include "gs_node_internal.h"
#include "gs_quant.h"

/* --- parts ------------------------------------------------------------------------------------------------------ */

uint32_t gs_policy_parts(const gs_config_t *config)
{
    return config->policy == GS_POLICY_GIST || config->policy == GS_POLICY_SEGMENTED_GOSSIP ? config->segments : 1;
}

/* Quantize the coordinates of a walk into node->message as a SEGMENT; `list` names the units of an indexed part.
   Keeps what error feedback or topk remember. Returns the bytes, 0 for an empty part. */
static size_t encode(gs_node_t *node, uint32_t part, const gs_walk_t *coordinates, const uint32_t *list,
                     uint32_t listed, float weight)
{
    const gs_config_t *config = &node->config;
    uint8_t *out = node->message;
    uint8_t coding = gs_policy_get(config->policy)->coding;
    size_t index_bytes = 0;
    if (list) {
        const uint32_t units = gs_units_count(&config->model, config->unit);
        index_bytes = gs_index_encode(list, listed, units, out + GS_SEGMENT_HEADER_BYTES, &coding);
    }

    gs_quant_range_t range = {0};
    uint32_t c;
    for (gs_walk_t walk = *coordinates; gs_walk_next(&walk, &c);) {
        gs_quant_see(&range, node->residual ? node->w[c] + node->residual[c] : node->w[c]);
    }
    if (range.count == 0) {
        return 0;
    }
    const float scale = gs_quant_scale(&range, config->bits);
    const size_t values_bytes = gs_quant_bytes(range.count, config->bits);
    uint8_t *values = out + GS_SEGMENT_HEADER_BYTES + index_bytes;
    memset(values, 0, values_bytes);
    uint32_t i = 0;
    for (gs_walk_t walk = *coordinates; gs_walk_next(&walk, &c); ++i) {
        const float plain = node->residual ? node->w[c] + node->residual[c] : node->w[c];
        gs_quant_store(values, i, plain, scale, config->bits);
        if (node->residual) {
            const float rest = plain - gs_quant_load(values, i, scale, config->bits);
            node->residual[c] = gs_is_finite(rest) ? rest : 0.0f;
        }
        if (node->reference) {
            node->reference[c] = gs_quant_load(values, i, scale, config->bits);
        }
    }
    out[0] = coding;
    out[1] = (uint8_t)config->bits;
    gs_store_u16(out + 2, (uint16_t)part);
    gs_store_f32(out + 4, weight);
    gs_store_f32(out + 8, scale);
    gs_store_u32(out + 12, (uint32_t)index_bytes);
    return GS_SEGMENT_HEADER_BYTES + index_bytes + values_bytes;
}

static void send_segment(gs_node_t *node, uint32_t peer, size_t len)
{
    gs_node_send(node, GS_MESSAGE_SEGMENT, node->peers[peer].id, node->message, len);
}

/* Encode part `part` of a policy without unit numbers. */
static size_t encode_plain(gs_node_t *node, uint32_t part, float weight)
{
    const gs_segment_t segment = {.coding = gs_policy_get(node->config.policy)->coding, .part = (uint16_t)part};
    gs_walk_t walk;
    gs_segment_walk(node, &segment, &walk);
    return encode(node, part, &walk, NULL, 0, weight);
}

static void send_to_all(gs_node_t *node, size_t len)
{
    for (uint32_t peer = 0; len && peer < node->state->peers; ++peer) {
        send_segment(node, peer, len);
    }
}

static gs_rng_t share_stream(const gs_node_t *node)
{
    gs_rng_t rng;
    gs_rng_init(&rng, node->config.seed, GS_STREAM_SHARE, node->round, node->id);
    return rng;
}

static float one(const gs_node_t *node, float field)
{
    (void)node;
    (void)field;
    return 1.0f;
}

static float zero(const gs_node_t *node, float field)
{
    (void)node;
    (void)field;
    return 0.0f;
}

static float unchanged(const gs_node_t *node, float field)
{
    (void)node;
    return field;
}

static float own_samples(const gs_node_t *node, float others)
{
    (void)others;
    return (float)node->n_train;
}

/* --- gist (SPEC.md 6.4) ----------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t *bounds;  /* [K + 1]: segment k is order[bounds[k]..bounds[k + 1]) */
    float *p;          /* [K] */
    uint16_t *segment; /* [sends] */
    uint16_t *place;   /* [sends]: place in the peer list */
    uint16_t *deck;    /* [peers] */
} gist_t;

static size_t gist_bytes(const gs_config_t *config)
{
    return 4 * ((size_t)config->segments + 1) + 4 * (size_t)config->segments + 4 * (size_t)config->sends +
           2 * (size_t)config->peers_max;
}

static gist_t gist_memory(const gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gist_t gist;
    gist.bounds = (uint32_t *)(void *)node->policy;
    gist.p = (float *)(void *)(gist.bounds + config->segments + 1);
    gist.segment = (uint16_t *)(void *)(gist.p + config->segments);
    gist.place = gist.segment + config->sends;
    gist.deck = gist.place + config->sends;
    return gist;
}

/* Fill node->gradient with the units' importance and sort their numbers, which take the place of node->start. */
static uint32_t *rank_units(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    float *scores = node->gradient;
    for (uint32_t p = 0; p < config->model.parameters; ++p) {
        const float score = config->score == GS_SCORE_WEIGHT   ? node->w[p]
                            : config->score == GS_SCORE_UPDATE ? node->w[p] - node->start[p]
                                                               : node->average[p];
        scores[p] = gs_absf(score);
    }
    const uint32_t units = gs_units_count(&config->model, config->unit);
    if (config->unit != GS_UNIT_PARAMETER) {
        /* In place: parameter u lies in a unit whose number is at most u, because every unit before it holds at least
           one parameter with a lower index. So what is overwritten has been read. */
        for (uint32_t u = 0; u < units; ++u) {
            const gs_unit_t unit = gs_units_get(&config->model, config->unit, u);
            scores[u] = gs_units_importance(&unit, scores, config->reduce);
        }
    }
    uint32_t *order = (uint32_t *)(void *)node->start;
    for (uint32_t u = 0; u < units; ++u) {
        order[u] = u;
    }
    gs_units_sort(order, units, scores);
    return order;
}

static void gist_cut(gs_node_t *node, gist_t *gist, const uint32_t *order)
{
    const gs_config_t *config = &node->config;
    const uint32_t units = gs_units_count(&config->model, config->unit);
    uint64_t parameters = 0;
    uint32_t segment = 0;
    float sum = 0.0f;
    gist->bounds[0] = 0;
    for (uint32_t u = 0; u <= units; ++u) {
        uint32_t here = config->segments;
        if (u < units) {
            here =
                gs_min_u32(config->segments - 1, (uint32_t)(parameters * config->segments / config->model.parameters));
        }
        while (segment < here) { /* close it, and those that stay empty */
            const uint32_t count = u - gist->bounds[segment];
            gist->p[segment] = count ? sum / (float)count : 0.0f;
            sum = 0.0f;
            gist->bounds[++segment] = u;
        }
        if (u < units) {
            const gs_unit_t unit = gs_units_get(&config->model, config->unit, order[u]);
            parameters += gs_unit_size(&unit);
            sum = sum + node->gradient[order[u]];
        }
    }
}

static bool is_empty(const gist_t *gist, uint32_t segment)
{
    return gist->bounds[segment] == gist->bounds[segment + 1];
}

static float sum_of(const float *terms, uint32_t count)
{
    float sum = 0.0f;
    for (uint32_t k = 0; k < count; ++k) {
        sum = sum + terms[k];
    }
    return sum;
}

static float sharpen(float x, float base)
{
    return base > 1.0f ? gs_expf(x * gs_logf(base)) : x;
}

static void gist_draw_segments(gs_node_t *node, gist_t *gist, gs_rng_t *rng)
{
    const gs_config_t *config = &node->config;
    const uint32_t segments = config->segments;
    float total = sum_of(gist->p, segments);
    if (!gs_is_finite(total) || total == 0.0f) {
        for (uint32_t k = 0; k < segments; ++k) {
            gist->p[k] = is_empty(gist, k) ? 0.0f : 1.0f;
        }
        total = sum_of(gist->p, segments);
    }
    uint32_t last = 0;
    for (uint32_t k = 0; k < segments; ++k) {
        const float p = gist->p[k] / total;
        gist->p[k] = is_empty(gist, k) ? 0.0f : sharpen(p, config->base);
        last = is_empty(gist, k) ? last : k;
    }
    total = sum_of(gist->p, segments);
    for (uint32_t j = 0; j < config->sends; ++j) {
        const float x = gs_rng_unit(gs_rng_at(rng, 2 * j)) * total;
        float running = 0.0f;
        uint32_t k = 0;
        for (; k < last; ++k) {
            running = running + gist->p[k];
            if (running > x && !is_empty(gist, k)) {
                break;
            }
        }
        gist->segment[j] = (uint16_t)k;
    }
}

static uint32_t draw_balanced(gs_node_t *node, uint32_t u)
{
    const uint32_t degree = node->state->peers;
    uint32_t least = UINT32_MAX;
    uint32_t candidates = 0;
    for (uint32_t peer = 0; peer < degree; ++peer) {
        const uint32_t sends = node->peers[peer].sends;
        candidates = sends < least ? 1 : candidates + (sends == least);
        least = gs_min_u32(sends, least);
    }
    uint32_t number = gs_rng_below(u, candidates);
    uint32_t peer = 0;
    while (node->peers[peer].sends != least || number-- > 0) {
        ++peer;
    }
    ++node->peers[peer].sends;
    return peer;
}

static void gist_draw_places(gs_node_t *node, gist_t *gist, gs_rng_t *rng)
{
    const uint32_t degree = node->state->peers;
    for (uint32_t j = 0; j < node->config.sends; ++j) {
        const uint32_t t = j % degree;
        uint32_t place = t;
        switch (node->config.spread) {
        case GS_SPREAD_UNIFORM_WITH_REPLACEMENT:
            place = gs_rng_below(gs_rng_at(rng, 2 * j + 1), degree);
            break;
        case GS_SPREAD_UNIFORM_WITHOUT_REPLACEMENT: {
            for (uint32_t peer = 0; t == 0 && peer < degree; ++peer) {
                gist->deck[peer] = (uint16_t)peer;
            }
            const uint32_t other = t + gs_rng_below(gs_rng_at(rng, 2 * j + 1), degree - t);
            place = gist->deck[other];
            gist->deck[other] = gist->deck[t];
            gist->deck[t] = (uint16_t)place;
            break;
        }
        case GS_SPREAD_BALANCED:
            place = draw_balanced(node, gs_rng_at(rng, 2 * j + 1));
            break;
        default:
            place = node->state->cursor++ % degree;
            break;
        }
        gist->place[j] = (uint16_t)place;
    }
}

static void gist_share(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gist_t gist = gist_memory(node);
    gs_rng_t rng = share_stream(node);
    uint32_t *order = rank_units(node);
    gist_cut(node, &gist, order);
    gist_draw_segments(node, &gist, &rng);
    gist_draw_places(node, &gist, &rng);
    for (uint32_t k = 0; k < config->segments; ++k) {
        size_t len = 0;
        for (uint32_t j = 0; j < config->sends; ++j) {
            if (gist.segment[j] != k) {
                continue;
            }
            if (len == 0) {
                uint32_t *list = order + gist.bounds[k];
                const uint32_t count = gist.bounds[k + 1] - gist.bounds[k];
                gs_walk_t walk;
                gs_units_sort(list, count, NULL);
                gs_walk_list(&walk, &config->model, config->unit, list, count);
                len = encode(node, k, &walk, list, count, node->success);
            }
            send_segment(node, gist.place[j], len);
        }
    }
}

static float gist_message_weight(const gs_node_t *node, float field)
{
    return node->config.success == GS_SUCCESS_EQUAL ? 1.0f : sharpen(field, node->config.success_base);
}

static float gist_own_weight(const gs_node_t *node, float others)
{
    (void)others;
    switch (node->config.success) {
    case GS_SUCCESS_EQUAL:
        return 1.0f;
    case GS_SUCCESS_VERIFIED:
        return sharpen(0.5f, node->config.success_base);
    default:
        return sharpen(node->success, node->config.success_base);
    }
}

/* --- segmented gossip (SPEC.md 6.5) ----------------------------------------------------------------------------- */

typedef struct {
    uint16_t *chosen; /* [pulls] */
    uint8_t *wanted;  /* bit peer * S + segment: to ask that peer for that segment */
    uint8_t *asked;   /* likewise: that peer asked for it */
} segmented_t;

static size_t bits_bytes(const gs_config_t *config)
{
    return ((size_t)config->peers_max * config->segments + 7) / 8;
}

static segmented_t segmented_memory(const gs_node_t *node)
{
    segmented_t memory;
    memory.chosen = (uint16_t *)(void *)node->policy;
    memory.wanted = node->policy + 2 * (size_t)node->config.pulls;
    memory.asked = memory.wanted + bits_bytes(&node->config);
    return memory;
}

static void set_bit(uint8_t *bits, size_t at)
{
    bits[at / 8] = (uint8_t)(bits[at / 8] | 1u << at % 8);
}

static bool get_bit(const uint8_t *bits, size_t at)
{
    return bits[at / 8] >> at % 8 & 1;
}

static void segmented_share(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const segmented_t memory = segmented_memory(node);
    gs_rng_t rng = share_stream(node);
    memset(memory.wanted, 0, bits_bytes(config));
    for (uint32_t s = 0; s < config->segments; ++s) {
        const uint32_t count = gs_rng_choose(&rng, node->state->peers, config->pulls, s * config->pulls, memory.chosen);
        for (uint32_t i = 0; i < count; ++i) {
            set_bit(memory.wanted, (size_t)memory.chosen[i] * config->segments + s);
        }
    }
    for (uint32_t peer = 0; peer < node->state->peers; ++peer) {
        uint16_t count = 0;
        for (uint32_t s = 0; s < config->segments; ++s) {
            if (get_bit(memory.wanted, (size_t)peer * config->segments + s)) {
                gs_store_u16(node->message + 2 + 2 * (size_t)count++, (uint16_t)s);
            }
        }
        if (count) {
            gs_store_u16(node->message, count);
            gs_node_send(node, GS_MESSAGE_PULL, node->peers[peer].id, node->message, 2 + 2 * (size_t)count);
        }
    }
}

gs_err_t gs_policy_on_pull(gs_node_t *node, uint32_t peer, const uint8_t *payload, size_t len)
{
    const gs_config_t *config = &node->config;
    if (config->policy != GS_POLICY_SEGMENTED_GOSSIP || len < 4 || len != 2 + 2 * (size_t)gs_load_u16(payload)) {
        return GS_ERR_MALFORMED;
    }
    for (size_t at = 2; at < len; at += 2) {
        const uint32_t segment = gs_load_u16(payload + at);
        if (segment >= config->segments || (at > 2 && segment <= gs_load_u16(payload + at - 2))) {
            return GS_ERR_MALFORMED;
        }
    }
    for (size_t at = 2; at < len; at += 2) {
        set_bit(segmented_memory(node).asked, (size_t)peer * config->segments + gs_load_u16(payload + at));
    }
    return GS_OK;
}

static void segmented_answer(gs_node_t *node)
{
    const uint32_t segments = node->config.segments;
    const segmented_t memory = segmented_memory(node);
    for (uint32_t s = 0; s < segments; ++s) {
        size_t len = 0;
        for (uint32_t peer = 0; peer < node->state->peers; ++peer) {
            if (get_bit(memory.asked, (size_t)peer * segments + s)) {
                len = len ? len : encode_plain(node, s, (float)node->n_train);
                if (len) {
                    send_segment(node, peer, len);
                }
            }
        }
    }
    memset(memory.asked, 0, bits_bytes(&node->config));
}

/* --- the others (SPEC.md 6.6, 6.7) ------------------------------------------------------------------------------ */

static void gossipfl_share(gs_node_t *node)
{
    send_to_all(node, encode_plain(node, 0, 1.0f));
}

static void dpsgd_share(gs_node_t *node)
{
    send_to_all(node, encode_plain(node, 0, (float)node->state->peers));
}

static float dpsgd_message_weight(const gs_node_t *node, float field)
{
    const float degree = (float)node->state->peers;
    return 1.0f / (1.0f + (degree > field ? degree : field));
}

static float dpsgd_own_weight(const gs_node_t *node, float others)
{
    (void)node;
    return 1.0f - others;
}

static void fedavg_share(gs_node_t *node)
{
    send_to_all(node, encode_plain(node, 0, (float)node->n_train));
}

static void epidemic_share(gs_node_t *node)
{
    uint16_t *chosen = (uint16_t *)(void *)node->policy;
    gs_rng_t rng = share_stream(node);
    const uint32_t count = gs_rng_choose(&rng, node->state->peers, node->config.fanout, 0, chosen);
    const size_t len = encode_plain(node, 0, 1.0f);
    for (uint32_t i = 0; i < count; ++i) {
        send_segment(node, chosen[i], len);
    }
}

static void topk_share(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    uint32_t *order = (uint32_t *)(void *)node->start;
    for (uint32_t p = 0; p < config->model.parameters; ++p) {
        node->gradient[p] = gs_absf(node->w[p] - node->reference[p]);
        order[p] = p;
    }
    gs_walk_t walk;
    gs_units_sort(order, config->model.parameters, node->gradient);
    gs_units_sort(order, config->top, NULL);
    gs_walk_list(&walk, &config->model, GS_UNIT_PARAMETER, order, config->top);
    send_to_all(node, encode(node, 0, &walk, order, config->top, 1.0f));
}

/* In a build for one experiment the compiler drops what the others share, and all that only they call. */
#ifdef GS_ONLY_POLICY
#define FOR(policy, function) (GS_ONLY_POLICY == GS_POLICY_##policy ? (function) : NULL)
#else
#define FOR(policy, function) (function)
#endif

static const gs_policy_t policies[] = {
    [GS_POLICY_GIST] = {FOR(GIST, gist_share), NULL, gist_message_weight, gist_own_weight, GS_CODING_BITMAP},
    [GS_POLICY_SEGMENTED_GOSSIP] = {FOR(SEGMENTED_GOSSIP, segmented_share), FOR(SEGMENTED_GOSSIP, segmented_answer),
                                    unchanged, own_samples, GS_CODING_RANGE},
    [GS_POLICY_GOSSIPFL] = {FOR(GOSSIPFL, gossipfl_share), NULL, one, one, GS_CODING_MASK},
    [GS_POLICY_DPSGD] = {FOR(DPSGD, dpsgd_share), NULL, dpsgd_message_weight, dpsgd_own_weight, GS_CODING_RANGE},
    [GS_POLICY_EPIDEMIC] = {FOR(EPIDEMIC, epidemic_share), NULL, one, one, GS_CODING_RANGE},
    [GS_POLICY_TOPK] = {FOR(TOPK, topk_share), NULL, one, one, GS_CODING_BITMAP},
    [GS_POLICY_FEDAVG] = {FOR(FEDAVG, fedavg_share), NULL, one, zero, GS_CODING_RANGE},
    [GS_POLICY_LOCAL] = {NULL, NULL, one, one, GS_CODING_RANGE},
};

const gs_policy_t *gs_policy_get(uint32_t kind)
{
    return &policies[kind];
}

size_t gs_policy_bytes(const gs_config_t *config)
{
    switch (config->policy) {
    case GS_POLICY_GIST:
        return gist_bytes(config);
    case GS_POLICY_SEGMENTED_GOSSIP:
        return 2 * (size_t)config->pulls + 2 * bits_bytes(config);
    case GS_POLICY_EPIDEMIC:
        return 2 * (size_t)config->fanout;
    default:
        return 0;
    }
}

size_t gs_policy_message_bytes(const gs_config_t *config)
{
    const uint32_t parameters = config->model.parameters;
    uint32_t values = config->policy == GS_POLICY_LOCAL ? 0 : parameters;
    size_t index = 0;
    size_t pull = 0;
    if (config->policy == GS_POLICY_GIST) {
        /* The units of a segment begin within ceil(P / K) parameters of each other; the last may reach beyond. */
        const uint32_t share = (parameters + config->segments - 1) / config->segments;
        values = gs_min_u32(parameters, share + gs_units_largest(&config->model, config->unit) - 1);
        index = gs_index_bytes_max(gs_units_count(&config->model, config->unit));
    } else if (config->policy == GS_POLICY_SEGMENTED_GOSSIP) {
        values = (parameters + config->segments - 1) / config->segments;
        pull = 2 + 2 * (size_t)config->segments;
    } else if (config->policy == GS_POLICY_TOPK) {
        values = config->top;
        index = gs_index_bytes_max(parameters);
    }
    const size_t segment = GS_SEGMENT_HEADER_BYTES + index + gs_quant_bytes(values, config->bits);
    return segment > pull ? segment : pull;
}
