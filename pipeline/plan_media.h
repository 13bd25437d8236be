/* `weft plan` for stages other than backbones: shards, tokenizers of media, reinforcement learning. */
#ifndef WEFT_PIPELINE_PLAN_MEDIA_H
#define WEFT_PIPELINE_PLAN_MEDIA_H
#include "pipeline/pipeline.h"

enum { PLAN_UNKNOWN = 1 }; /* status with a message: depends on stages that have not run */

/* A stage to plan, once for all seeds of an arm. */
struct plan_place {
    const struct recipe_stage *stage;
    const char *arm; /* NULL: all arms have the same */
    i64 runs;        /* that make such a stage */
    char *label;     /* how messages name it */
};
struct plan_total {     /* of all runs, as far as known */
    struct buffer *out; /* what is printed */
    bool json;          /* lines of JSON, for programs */
    double disk, seconds;
    double disk_to_come; /* without what stages that are done have written */
    i64 unknown;         /* plans that cannot be made yet */
    i64 planned;
    i64 memory; /* bytes of a rank, of the stage that needs most */
    char largest[128];
};
struct plan_machine {        /* what a plan is for */
    i64 ranks, memory_bytes; /* memory_bytes: of a GPU or a machine (--memory); 0: that of this one */
    bool gpu;
    bool together; /* all ranks share that memory (--cluster) */
};
struct json;
void plan_put_line(struct buffer *out, const struct json *line);
/* Adds what a stage needs. */
void plan_need(struct plan_total *total, const struct plan_place *place, i64 memory_bytes, double disk_bytes);
/* Appends whether memory and disk are there for all that was planned. folder: where the run will be. */
void plan_verdict(const struct plan_total *total, const struct plan_machine *machine, const char *folder);
void plan_put_place(struct json *out, const struct plan_place *place); /* "stage", and of an arm or seed more */

/* Replaces the names of recipe stages in lines of data by their folders. Free with memory_free. */
char *plan_resolved(const struct recipe *r, const char *lines);
/* A copy of sources with their data so. */
struct source_list plan_sources_resolved(const struct recipe *r, const struct source_list *sources);
void plan_sources_release(struct source_list *sources);

/* Checkpoints kept, one more while it is written, and the model or tokenizer. */
double plan_disk_bytes(i64 parameters, i64 kept, enum dtype dtype);

/* Append what a stage will need, and add it to the total for each run. device: that would read the media.
 * Return 0, -1 and a message, or PLAN_UNKNOWN and a message. */
int plan_prepare(struct plan_total *total, const struct recipe *r, const struct plan_place *place,
                 struct device *device);
bool is_media_tokenizer(const struct recipe_stage *s);
/* The stage of the recipe that a media tokenizer begins with, through all that it starts from. */
const struct recipe_stage *first_tokenizer(const struct recipe *r, const struct recipe_stage *s);
int plan_tokenizer(struct plan_total *total, const struct recipe *r, const struct plan_place *place, enum dtype dtype,
                   bool gpu, double gflops);
bool is_refiner(const struct recipe_stage *s);
int plan_refiner(struct plan_total *total, const struct recipe *r, const struct plan_place *place, enum dtype dtype,
                 bool gpu, double gflops);
/* program_bytes: of the program itself, in host memory. */
int plan_rl(struct plan_total *total, const struct recipe *r, const struct plan_place *place, const struct stage *stage,
            bool gpu, i64 program_bytes);

#endif
