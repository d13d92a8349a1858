/* Prints what the processor makes of pairs of numbers: every instruction that the assembler gets as a macro. */
#include <stdint.h>
#include <string.h>

#include "gs_board.h"
#include "pairs.h"

static void print(uint32_t value)
{
    for (int shift = 28; shift >= 0; shift -= 4) {
        gs_board_put((uint8_t) "0123456789abcdef"[(value >> shift) & 15]);
    }
    gs_board_put('\n');
}

static uint32_t bits(float value)
{
    uint32_t found;
    memcpy(&found, &value, sizeof found);
    return found;
}

static float real(uint32_t value)
{
    float found;
    memcpy(&found, &value, sizeof found);
    return found;
}

static void integers(uint32_t a, uint32_t b)
{
    const int32_t x = (int32_t)a;
    const int32_t y = (int32_t)b;
    print((uint32_t)(((uint64_t)a * b) >> 32));
    print((uint32_t)(((int64_t)x * y) >> 32));
    print(a / (b | 1));
    print(a % (b | 1));
    print((uint32_t)(x / (y >> 1 | 1)));
    print((uint32_t)(x % (y >> 1 | 1)));
    print(a < b ? a : b);
    print(a > b ? a : b);
    print((uint32_t)(x < y ? x : y));
    print((uint32_t)(x > y ? x : y));
    print((uint32_t)(int8_t)a);
    print((uint32_t)(int16_t)a);
    print((uint32_t)(x < -128 ? -128 : x > 127 ? 127 : x));
}

static void floats(uint32_t a, uint32_t b)
{
    const float x = real(a);
    const float y = real(b);
    print(bits(x + y));
    print(bits(x - y));
    print(bits(x * y));
    print(bits(-x));
    print(bits(__builtin_fabsf(x)));
    print((uint32_t)(x < y) | (uint32_t)(x <= y) << 1 | (uint32_t)(x == y) << 2 | (uint32_t)(x != y) << 3 |
          (uint32_t)__builtin_isunordered(x, y) << 4 | (uint32_t) !(x < y) << 5 | (uint32_t) !(x <= y) << 6);
    print(bits(x < y ? x : y));
    print(bits((float)(int32_t)a));
    print(bits((float)a));
    if (x > -2147483648.0f && x < 2147483648.0f) {
        print((uint32_t)(int32_t)x);
    }
    if (x >= 0 && x < 4294967296.0f) {
        print((uint32_t)x);
    }
}

int main(void)
{
    for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; ++i) {
        integers(pairs[i][0], pairs[i][1]);
        floats(pairs[i][0], pairs[i][1]);
    }
    return 0;
}
