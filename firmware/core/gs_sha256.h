/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) for the tags of frames. */
#ifndef GS_SHA256_H
#define GS_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define GS_SHA256_BYTES 32u

typedef struct {
    uint32_t state[8];
    uint64_t len; /* bytes so far */
    uint8_t block[64];
} gs_sha256_t;

void gs_sha256_init(gs_sha256_t *sha);
void gs_sha256_update(gs_sha256_t *sha, const uint8_t *data, size_t len);
void gs_sha256_final(gs_sha256_t *sha, uint8_t out[GS_SHA256_BYTES]);

/* A key, ready for use: the states after the inner and the outer padding. */
typedef struct {
    gs_sha256_t inner;
    gs_sha256_t outer;
} gs_hmac_key_t;

void gs_hmac_init(gs_hmac_key_t *key, const uint8_t *secret, size_t len);
void gs_hmac(const gs_hmac_key_t *key, const uint8_t *data, size_t len, uint8_t out[GS_SHA256_BYTES]);

#endif
