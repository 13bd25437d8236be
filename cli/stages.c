#include "cli/stages.h"

#include "cli/stage_command.h"
#include "cli/stage_report.h"
#include "tokenizer_training/tokenizer_training.h"
#include "data/curate/dedup.h"
#include "data/prepare/prepare.h"
#include "rl/rl.h"
#include "inference/inference.h"
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

#define KIND(name, help, table, type, run, work)                                                                       \
    {                                                                                                                  \
        name, help, table, sizeof(struct type), run, work                                                              \
    }
#define TOKENIZER(name, help, stem, work, ...)                                                                         \
    {                                                                                                                  \
        "tokenizer-" name, help, stem##_stage_table, sizeof(struct stem##_settings), stem##_stage, work,               \
            .sizes = stem##_stage_sizes, __VA_ARGS__                                                                   \
    }
const struct stage_kind stage_kinds[] = {
    KIND("command", "run a program", command_table, command_settings, command_stage, LIGHT),
    TOKENIZER("text", "train byte-level BPE", text, LIGHT, .absent = NULL),
    TOKENIZER("vision", "train the vision tokenizer", vision, HEAVY, .absent = vision_stage_absent),
    TOKENIZER("audio", "train the audio tokenizer", audio, HEAVY, .absent = audio_stage_absent),
    KIND("prepare", "encode media and text into shards", prepare_table, prepare_settings, run_prepare, LIGHT),
    KIND("dedup", "remove duplicates across several folders of shards", dedup_table, dedup_settings, run_dedup, LIGHT),
    {"pretrain", "train the backbone", pretrain_table, sizeof(struct pretrain_settings), pretrain_stage, ON_RANKS,
     .check = pretrain_check_settings},
    {"sft", "supervised fine-tuning on conversations", sft_table, sizeof(struct pretrain_settings), sft_stage, ON_RANKS,
     .absent = sft_stage_absent},
    KIND("rl", "reinforcement learning on verifiable rewards", rl_table, rl_settings, rl_stage, HEAVY),
    KIND("eval", "measure rewards on prompts, or held-out loss on shards", eval_table, eval_settings, eval_stage,
         LIGHT),
    KIND("extract", "extract a sub-model", extract_table, extract_settings, extract_stage, LIGHT),
    KIND("grid", "measure a grid of sub-models", grid_table, grid_settings, grid_stage, LIGHT),
    KIND("routing", "measure expert usage", routing_table, routing_settings, routing_stage, LIGHT),
    KIND("generate", "generate samples of every modality and compare them with the originals", samples_table,
         samples_settings, samples_stage, LIGHT),
    KIND("export", "export the text backbone for other software", export_table, export_settings, export_stage, LIGHT),
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
