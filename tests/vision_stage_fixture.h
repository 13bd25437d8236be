/* The stage of the vision tokenizer on tiny settings, in the folder of tests/scratch.h. */
#ifndef WEFT_TESTS_VISION_STAGE_FIXTURE_H
#define WEFT_TESTS_VISION_STAGE_FIXTURE_H
#include "core/settings.h"
#include "tokenizer_training/tokenizer_training.h"
#include "tests/scratch.h"
#include "tests/vision_fixture.h"

/* Runs it into the folder `name`, which is made. Returns as the stage does. */
static inline int run_vision(const char *name, const char *data, const struct setting_override *more, i64 count)
{
    struct vision_settings own = {0};
    struct setting_override all[32] = {{"data", data},
                                       {"size", "16"},
                                       {"stride", "8"},
                                       {"bits", "6"},
                                       {"frames", "5"},
                                       {"channels", "[8, 8]"},
                                       {"batch", "2"},
                                       {"clip_batch", "2"},
                                       {"still_batch", "2"},
                                       {"steps", "3"},
                                       {"clip_steps", "3"},
                                       {"validation", "0"},
                                       {"checkpoint_steps", "1"},
                                       {"keep", "9"},
                                       {"use_steps", "0"}};
    i64 n = 15;
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    succeed(settings_read(&own, vision_stage_table, NULL, NULL, all, n));
    struct stage stage = {.name = "vision",
                          .out = path_of(name),
                          .seed = 9,
                          .recipe_seed = 9,
                          .device = &device,
                          .dtype = DTYPE_BF16,
                          .ranks = parallel_alone()};
    succeed(directory_make(stage.out));
    int status = vision_stage(&own, &stage);
    settings_release(&own, vision_stage_table);
    return status;
}

#endif
