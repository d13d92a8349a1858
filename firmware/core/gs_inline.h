/* How to tell the compiler that loops over the registers of a block must vanish, or the registers become memory.
   Changes speed, never results. */
#ifndef GS_INLINE_H
#define GS_INLINE_H

#if defined(__clang__)
#define GS_INLINE static inline __attribute__((always_inline))
#define GS_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define GS_INLINE static inline __attribute__((always_inline))
#define GS_UNROLL _Pragma("GCC unroll 8")
#else
#define GS_INLINE static inline
#define GS_UNROLL
#endif

#endif
