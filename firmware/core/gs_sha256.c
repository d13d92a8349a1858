#include "gs_sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the square roots of 8 and the cube roots of 64 primes. */
static const uint32_t initial[8] = {
    0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
};

static const uint32_t constants[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) {
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
               block[4 * t + 3];
    }
    for (int t = 16; t < 64; ++t) {
        const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        const uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; ++t) {
        const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[t] + w[t];
        const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void gs_sha256_init(gs_sha256_t *sha)
{
    memcpy(sha->state, initial, sizeof sha->state);
    sha->len = 0;
}

void gs_sha256_update(gs_sha256_t *sha, const uint8_t *data, size_t len)
{
    size_t held = (size_t)(sha->len % 64);
    sha->len += len;
    while (len) {
        if (held == 0 && len >= 64) {
            compress(sha->state, data);
            data += 64;
            len -= 64;
            continue;
        }
        const size_t take = len < 64 - held ? len : 64 - held;
        memcpy(sha->block + held, data, take);
        held += take;
        data += take;
        len -= take;
        if (held == 64) {
            compress(sha->state, sha->block);
            held = 0;
        }
    }
}

void gs_sha256_final(gs_sha256_t *sha, uint8_t out[GS_SHA256_BYTES])
{
    const uint64_t bits = sha->len * 8;
    size_t held = (size_t)(sha->len % 64);
    sha->block[held++] = 0x80;
    if (held > 56) {
        memset(sha->block + held, 0, 64 - held);
        compress(sha->state, sha->block);
        held = 0;
    }
    memset(sha->block + held, 0, 56 - held);
    for (int i = 0; i < 8; ++i) {
        sha->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    compress(sha->state, sha->block);
    for (int i = 0; i < 32; ++i) {
        out[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void gs_hmac_init(gs_hmac_key_t *key, const uint8_t *secret, size_t len)
{
    uint8_t padded[64] = {0};
    if (len > sizeof padded) {
        gs_sha256_init(&key->inner);
        gs_sha256_update(&key->inner, secret, len);
        gs_sha256_final(&key->inner, padded);
    } else if (len) {
        memcpy(padded, secret, len);
    }
    for (size_t i = 0; i < sizeof padded; ++i) {
        padded[i] ^= 0x36;
    }
    gs_sha256_init(&key->inner);
    gs_sha256_update(&key->inner, padded, sizeof padded);
    for (size_t i = 0; i < sizeof padded; ++i) {
        padded[i] ^= 0x36 ^ 0x5c;
    }
    gs_sha256_init(&key->outer);
    gs_sha256_update(&key->outer, padded, sizeof padded);
}

void gs_hmac(const gs_hmac_key_t *key, const uint8_t *data, size_t len, uint8_t out[GS_SHA256_BYTES])
{
    gs_sha256_t sha = key->inner;
    gs_sha256_update(&sha, data, len);
    gs_sha256_final(&sha, out);
    sha = key->outer;
    gs_sha256_update(&sha, out, GS_SHA256_BYTES);
    gs_sha256_final(&sha, out);
}
