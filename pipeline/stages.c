#include "pipeline/pipeline.h"

#include "pipeline/stage_command.h"
#include "pipeline/stage_report.h"
#include "tokenizer_training/tokenizer_training.h"
#include "data/curate/dedup.h"
#include "data/prepare/prepare.h"
#include "rl/rl.h"
#include "routing/routing.h"
#include "samples/samples.h"
#include "train/pretrain.h"

#include <string.h>

/* Adapters: data/ is below train/ and does not know struct stage. */
static int run_prepare(const void *settings, const struct stage *stage)
{
    return prepare_stage(settings, stage->out, stage->recipe_seed, stage->device, stage->dtype);
}

static int run_dedup(const void *settings, const struct stage *stage)
{
    return dedup_stage(settings, stage->out);
}

#define KIND(name, help, table, type, run, work, ...)                                                                  \
    {                                                                                                                  \
        name, help, table, sizeof(struct type), run, work, __VA_ARGS__                                                 \
    }
#define TOKENIZER(name, help, stem, work, less, ...)                                                                   \
    {                                                                                                                  \
        "tokenizer-" name, help, stem##_stage_table, sizeof(struct stem##_settings), stem##_stage, work,               \
            .smaller = less, .sizes = stem##_stage_sizes, __VA_ARGS__                                                  \
    }
const struct stage_kind stage_kinds[] = {
    KIND("command", "run a program", command_table, command_settings, command_stage, LIGHT,
         .stops = "its program is told to end", .check = command_check_settings),
    TOKENIZER("text", "train byte-level BPE", text, LIGHT, "bytes, vocabulary", .check = text_check_settings),
    TOKENIZER("vision", "train the vision tokenizer", vision, HEAVY,
              "batch, clip_batch, still_batch, memory_mb, shuffle_buffer", .check = vision_check_settings,
              .absent = vision_stage_absent),
    TOKENIZER("audio", "train the audio tokenizer", audio, HEAVY, "batch, crop_s, memory_mb, shuffle_buffer",
              .check = audio_check_settings, .absent = audio_stage_absent),
    KIND("refiner", "train a refiner of the pictures and clips that a vision tokenizer decodes", refiner_stage_table,
         refiner_settings, refiner_stage, HEAVY, .smaller = "batch, memory_mb, shuffle_buffer",
         .check = refiner_check_settings, .absent = refiner_stage_absent),
    KIND("prepare", "encode media and text into shards", prepare_table, prepare_settings, run_prepare, LIGHT,
         .smaller = "pictures.most_pixels, audio_seconds, filter.memory_bytes, or WEFT_THREADS",
         .stops = "what is encoded stays, and the next call goes on behind it", .check = prepare_check_settings,
         .check_machine = prepare_check_machine),
    KIND("dedup", "remove duplicates across several folders of shards", dedup_table, dedup_settings, run_dedup, LIGHT,
         .smaller = "memory_bytes"),
    KIND("pretrain", "train the backbone", pretrain_table, pretrain_settings, pretrain_stage, ON_RANKS,
         .smaller = "batch.micro_rows, or the model (recompute: true needs less, too)",
         .check = pretrain_check_settings),
    KIND("sft", "supervised fine-tuning on conversations", sft_table, pretrain_settings, sft_stage, ON_RANKS,
         .smaller = "batch.micro_rows, or the model (recompute: true needs less, too)", .check = sft_check_settings,
         .absent = sft_stage_absent),
    KIND("rl", "reinforcement learning on verifiable rewards", rl_table, rl_settings, rl_stage, HEAVY,
         .smaller = "micro_positions, seats, max_tokens, or the model (recompute: true needs less, too)",
         .check = rl_check_settings, .check_machine = rl_check_machine),
    KIND("eval", "measure rewards on prompts, or held-out loss on shards", eval_table, eval_settings, eval_stage, LIGHT,
         .smaller = "length, or the model", .check = eval_check_settings, .check_machine = eval_check_machine),
    KIND("extract", "extract a sub-model", extract_table, extract_settings, extract_stage, LIGHT,
         .smaller = "length, or the model", .check = extract_check_settings),
    KIND("grid", "measure a grid of sub-models", grid_table, grid_settings, grid_stage, LIGHT,
         .smaller = "length, decode_tokens, or the model", .check = grid_check_settings),
    KIND("routing", "measure expert usage", routing_table, routing_settings, routing_stage, LIGHT,
         .smaller = "length, or the model", .check = routing_check_settings),
    KIND("generate", "generate samples of every modality and compare them with the originals", samples_table,
         samples_settings, samples_stage, LIGHT, .smaller = "clips, sounds, pictures, or the model",
         .check = samples_check_settings),
    KIND("export", "export the text backbone for other software", export_table, export_settings, export_stage, LIGHT,
         .smaller = "the model"),
    {"report", "write report.html", report_table, 0, report_stage, LIGHT, .each_time = true},
    {NULL},
};

const struct stage_kind *stage_kind_find(const char *name)
{
    for (const struct stage_kind *k = stage_kinds; k->name; k++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}
