/* The ESP32-S3's processor. */
#define GS_MUL32_HIGH 1
#include "core_config.h"
