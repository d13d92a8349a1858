/* What the compiler and the core take for granted and no library here has. */
#include <stdint.h>
#include <string.h>

/* The compiler calls this for the upper half of a product, which the emulated processor has no instruction for; the
   compiler's own library, made for another processor, has it not. Each partial product fits 32 bits. */
uint64_t __umulsidi3(uint32_t a, uint32_t b);
uint64_t __umulsidi3(uint32_t a, uint32_t b)
{
    const uint32_t low = (a & 0xFFFF) * (b & 0xFFFF);
    const uint32_t cross = (a >> 16) * (b & 0xFFFF);
    const uint32_t other = (a & 0xFFFF) * (b >> 16);
    const uint32_t middle = (low >> 16) + (cross & 0xFFFF) + (other & 0xFFFF);
    const uint32_t high = (a >> 16) * (b >> 16) + (cross >> 16) + (other >> 16) + (middle >> 16);
    return (uint64_t)high << 32 | (middle << 16 | (low & 0xFFFF));
}

/* 64-bit division, which the compiler's library has not either: a bit at a time, from the first that can be set. */
uint64_t __udivmoddi4(uint64_t a, uint64_t b, uint64_t *rest);
uint64_t __udivmoddi4(uint64_t a, uint64_t b, uint64_t *rest)
{
    uint64_t quotient = 0;
    if ((a | b) >> 32 == 0) {
        quotient = (uint32_t)a / (uint32_t)b;
        a = (uint32_t)a % (uint32_t)b;
    } else if (a >= b) {
        for (int bit = __builtin_clzll(b) - __builtin_clzll(a); bit >= 0; --bit) {
            if (a >= b << bit) {
                a -= b << bit;
                quotient |= (uint64_t)1 << bit;
            }
        }
    }
    if (rest) {
        *rest = a;
    }
    return quotient;
}

uint64_t __udivdi3(uint64_t a, uint64_t b);
uint64_t __udivdi3(uint64_t a, uint64_t b)
{
    return __udivmoddi4(a, b, NULL);
}

uint64_t __umoddi3(uint64_t a, uint64_t b);
uint64_t __umoddi3(uint64_t a, uint64_t b)
{
    uint64_t rest;
    (void)__udivmoddi4(a, b, &rest);
    return rest;
}

/* The compiler must not turn these loops into calls of what they define. */
#define PLAIN __attribute__((optimize("no-tree-loop-distribute-patterns")))

PLAIN void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    uint8_t *a = to;
    const uint8_t *b = from;
    if ((((uintptr_t)a | (uintptr_t)b) & 3) == 0) {
        for (; count >= 4; count -= 4, a += 4, b += 4) {
            *(uint32_t *)(void *)a = *(const uint32_t *)(const void *)b;
        }
    }
    while (count-- > 0) {
        *a++ = *b++;
    }
    return to;
}

PLAIN void *memmove(void *to, const void *from, size_t count)
{
    uint8_t *a = to;
    const uint8_t *b = from;
    if (a <= b || a >= b + count) {
        return memcpy(to, from, count);
    }
    while (count-- > 0) {
        a[count] = b[count];
    }
    return to;
}

PLAIN void *memset(void *to, int value, size_t count)
{
    uint8_t *a = to;
    const uint32_t word = (uint8_t)value * 0x01010101u;
    if (((uintptr_t)a & 3) == 0) {
        for (; count >= 4; count -= 4, a += 4) {
            *(uint32_t *)(void *)a = word;
        }
    }
    while (count-- > 0) {
        *a++ = (uint8_t)value;
    }
    return to;
}

PLAIN int memcmp(const void *a, const void *b, size_t count)
{
    const uint8_t *x = a;
    const uint8_t *y = b;
    for (; count > 0; --count, ++x, ++y) {
        if (*x != *y) {
            return *x < *y ? -1 : 1;
        }
    }
    return 0;
}

PLAIN void *memchr(const void *bytes, int value, size_t count)
{
    for (const uint8_t *at = bytes; count > 0; --count, ++at) {
        if (*at == (uint8_t)value) {
            return (void *)(uintptr_t)at;
        }
    }
    return NULL;
}
