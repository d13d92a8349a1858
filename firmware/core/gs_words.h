/* Read the config words of an image and remember the first, in order of place, that is wrong. */
#ifndef GS_WORDS_H
#define GS_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "gs_bytes.h"

typedef struct {
    const uint8_t *words;
    uint32_t bad_word; /* GS_CFG_WORDS: none */
} gs_words_t;

static inline uint32_t gs_words_at(const gs_words_t *words, uint32_t at)
{
    return gs_load_u32(words->words + 4 * (size_t)at);
}

static inline void gs_words_refuse(gs_words_t *words, uint32_t at)
{
    if (at < words->bad_word) {
        words->bad_word = at;
    }
}

#endif
