/* The processor that QEMU's de233_fpu emulates, as far as it differs from the ESP32-S3's. */
#define GS_MUL32_HIGH 0
#include "core_config.h"
