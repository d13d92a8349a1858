#include "gs_node_internal.h"
#include "gs_quant.h"

static uint8_t *place(const gs_node_t *node, uint32_t number)
{
    const uint32_t at = (node->state->fifo_head + number) % node->config.fifo;
    return node->fifo + (size_t)at * node->place_bytes;
}

static uint32_t *place_len(const gs_node_t *node, uint32_t number)
{
    return &node->fifo_lens[(node->state->fifo_head + number) % node->config.fifo];
}

static gs_err_t parse(const gs_config_t *config, const uint8_t *payload, size_t len, gs_segment_t *segment)
{
    const uint8_t coding = gs_policy_get(config->policy)->coding;
    if (len < GS_SEGMENT_HEADER_BYTES || payload[1] != config->bits) {
        return GS_ERR_MALFORMED;
    }
    segment->coding = payload[0];
    segment->part = gs_load_u16(payload + 2);
    segment->weight = gs_load_f32(payload + 4);
    segment->scale = gs_load_f32(payload + 8);
    segment->index_bytes = gs_load_u32(payload + 12);
    segment->index = payload + GS_SEGMENT_HEADER_BYTES;
    if (segment->index_bytes > len - GS_SEGMENT_HEADER_BYTES || segment->part >= gs_policy_parts(config)) {
        return GS_ERR_MALFORMED;
    }
    segment->values = segment->index + segment->index_bytes;
    const bool indexed = segment->coding == GS_CODING_BITMAP || segment->coding == GS_CODING_DELTA;
    const bool expected = coding == GS_CODING_BITMAP ? indexed : segment->coding == coding && !segment->index_bytes;
    return expected ? GS_OK : GS_ERR_MALFORMED;
}

void gs_segment_walk(const gs_node_t *node, const gs_segment_t *segment, gs_walk_t *walk)
{
    const gs_config_t *config = &node->config;
    const uint64_t parameters = config->model.parameters;
    const uint32_t parts = gs_policy_parts(config);
    gs_rng_t rng;
    switch (segment->coding) {
    case GS_CODING_RANGE:
        gs_walk_range(walk, (uint32_t)(segment->part * parameters / parts),
                      (uint32_t)((segment->part + 1u) * parameters / parts));
        break;
    case GS_CODING_MASK:
        gs_rng_init(&rng, config->seed, GS_STREAM_MASK, node->round, 0);
        gs_walk_mask(walk, config->model.parameters, &rng, config->ratio24);
        break;
    default:
        gs_walk_index(walk, &config->model, config->unit, segment->coding, segment->index, segment->index_bytes);
        break;
    }
}

/* Whether a receiver may use the values (SPEC.md 6.8). */
static bool is_acceptable(const gs_config_t *config, const gs_segment_t *segment, uint32_t count)
{
    float squares = 0.0f;
    if (!gs_is_finite(segment->weight) || segment->weight < 0.0f) {
        return false;
    }
    for (uint32_t i = 0; i < count; ++i) {
        const float value = gs_quant_load(segment->values, i, segment->scale, config->bits);
        squares = squares + value * value;
    }
    return gs_sqrtf(squares) <= config->max_norm; /* false for NaN; infinity is above any bound */
}

gs_err_t gs_merge_on_segment(gs_node_t *node, const uint8_t *payload, size_t len)
{
    const gs_config_t *config = &node->config;
    gs_segment_t segment;
    gs_walk_t walk;
    uint32_t count = 0;
    uint32_t c;
    if (len > node->place_bytes || parse(config, payload, len, &segment)) {
        return GS_ERR_MALFORMED;
    }
    gs_segment_walk(node, &segment, &walk);
    while (gs_walk_next(&walk, &c)) {
        ++count;
    }
    const size_t values_bytes = len - GS_SEGMENT_HEADER_BYTES - segment.index_bytes;
    if (!gs_walk_ok(&walk) || count == 0 || values_bytes != gs_quant_bytes(count, config->bits) ||
        !gs_quant_is_valid(segment.values, count, config->bits)) {
        return GS_ERR_MALFORMED;
    }
    if (!is_acceptable(config, &segment, count)) {
        ++node->counters[GS_METRIC_MESSAGES_REJECTED];
        return GS_OK;
    }
    gs_state_t *state = node->state;
    if (state->fifo_count == config->fifo) {
        state->fifo_head = (state->fifo_head + 1) % config->fifo;
        --state->fifo_count;
        ++node->counters[GS_METRIC_MESSAGES_EVICTED];
    }
    memcpy(place(node, state->fifo_count), payload, len);
    *place_len(node, state->fifo_count) = (uint32_t)len;
    ++state->fifo_count;
    return GS_OK;
}

/* Score a message by what it does to the node's own validation loss (SPEC.md 6.10). */
static float verify(gs_node_t *node, const gs_segment_t *segment)
{
    const gs_config_t *config = &node->config;
    const size_t bytes = config->model.parameters * sizeof(float);
    gs_walk_t walk;
    float loss;
    uint32_t correct;
    uint32_t c;
    memcpy(node->start, node->w, bytes);
    gs_segment_walk(node, segment, &walk);
    for (uint32_t i = 0; gs_walk_next(&walk, &c); ++i) {
        node->w[c] = (node->w[c] + gs_quant_load(segment->values, i, segment->scale, config->bits)) * 0.5f;
    }
    gs_node_validate(node, &loss, &correct);
    memcpy(node->w, node->start, bytes);

    const float x = node->val_loss > 0.0f ? 0.5f + ((node->val_loss - loss) / node->val_loss) * 0.5f : 0.5f;
    if (!gs_is_finite(x)) {
        return 0.0f;
    }
    return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
}

/* Fill node->fifo_weights; returns their sum. */
static float weigh(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    const bool verified = config->policy == GS_POLICY_GIST && config->success == GS_SUCCESS_VERIFIED;
    const gs_policy_t *policy = gs_policy_get(config->policy);
    float sum = 0.0f;
    for (uint32_t i = 0; i < node->state->fifo_count; ++i) {
        gs_segment_t segment;
        (void)parse(config, place(node, i), *place_len(node, i), &segment);
        const float field = verified ? verify(node, &segment) : segment.weight;
        node->fifo_weights[i] = policy->message_weight(node, field);
        sum = sum + node->fifo_weights[i];
    }
    return sum;
}

void gs_merge_commit(gs_node_t *node)
{
    const gs_config_t *config = &node->config;
    gs_state_t *state = node->state;
    if (state->fifo_count == 0 || state->fifo_count < config->threshold) {
        return;
    }
    const float others = weigh(node);
    const float own = gs_policy_get(config->policy)->own_weight(node, others);
    float *numerator = node->start;
    float *denominator = node->gradient;
    /* NaN: no message covered the coordinate. Weights are neither NaN nor -inf, so no sum of them is. */
    for (uint32_t c = 0; c < config->model.parameters; ++c) {
        denominator[c] = gs_float_of(GS_CANONICAL_NAN);
    }
    for (uint32_t i = 0; i < state->fifo_count; ++i) {
        const float weight = node->fifo_weights[i];
        gs_segment_t segment;
        gs_walk_t walk;
        uint32_t c;
        (void)parse(config, place(node, i), *place_len(node, i), &segment);
        gs_segment_walk(node, &segment, &walk);
        for (uint32_t k = 0; weight > 0.0f && gs_walk_next(&walk, &c); ++k) {
            const float value = gs_quant_load(segment.values, k, segment.scale, config->bits);
            const bool covered = denominator[c] == denominator[c];
            numerator[c] = (covered ? numerator[c] : own * node->w[c]) + weight * value;
            denominator[c] = (covered ? denominator[c] : own) + weight;
        }
    }
    for (uint32_t c = 0; c < config->model.parameters; ++c) {
        if (denominator[c] == denominator[c]) {
            const float mixed = numerator[c] / denominator[c];
            node->w[c] = gs_is_finite(mixed) ? mixed : node->w[c];
        }
    }
    node->counters[GS_METRIC_MESSAGES_MERGED] += state->fifo_count;
    state->fifo_head = 0;
    state->fifo_count = 0;
}
