/* The ESP32-S3's processor as Xtensa GCC wants it described: a shared object of arrays that it loads at run time
   (environment variable XTENSA_GNU_CONFIG). Built for the machine that compiles, not for the board.

   The LX7's hardware loops, thread pointer and 16-bit accumulator are left out: the assembler at hand does not know
   them, and a macro cannot take part in relaxing a loop (gossamer/toolchain/). Everything else that the compiler can use is as on the chip.

   GS_MUL32_HIGH says whether there is an instruction for the upper half of a product. */

int plugin_is_GPL_compatible;

const char *const xtensa_config_strings[] = {0};

/* clang-format off */
/* In the order of the compiler's own list (xtensa-config.h). */
int xtensa_config_v1[54] = {
    0, 1, 0, 1, 1, 1,                /* big endian, code density, const16, abs, addx, l32r */
    0, 0,                            /* absolute literals, literals in text */
    0, 1, 1, GS_MUL32_HIGH, 1,       /* mac16, mul16, mul32, its upper half, div32 */
    1, 1, 1, 0, 0,                   /* nsa, min and max, sext, loops, thread pointer */
    1, 1, 1,                         /* release and sync, s32c1i, booleans */
    1, 0, 0, 0, 0, 0,                /* float: there, div, recip, sqrt, rsqrt, post-increment */
    0, 0, 0, 0, 0,                   /* double: there, div, recip, sqrt, rsqrt */
    1, 64, 0, 0,                     /* windowed registers, how many, wide branches, predicted branches */
    32, 32, 5, 5, 5, 5, 0,           /* caches: sizes, lines, widths as logarithms; write-back */
    0, 0, 0, 0, 0, 0,                /* MMU, its least page; debugging, its break registers, its level */
    3, 4, 0, 1, 1,                   /* longest instruction, fetch; ABI: which, windowed, call0 */
};
int xtensa_config_v2[3] = {2, 270012, 270012}; /* pipeline stage of memory; latest and earliest release */
int xtensa_config_v3[4] = {1, 0, 0, 0};        /* clamps, depbits, exclusive, xea3 */
int xtensa_config_v4[5] = {16, 1, 1, 0, 0};    /* data width; unaligned loads and stores trap, and are not done */
/* clang-format on */
