/* What a training stage's step will need of a rank, known before it runs and without its data: the step with the full
 * model on the meta backend, on batches made of draws (train/plan.h), and a pass over held-out rows; and what of it
 * fits into a GPU. Measuring between steps (grid_steps) takes both at once, which is not foreseen. */
#ifndef WEFT_TRAIN_FORESEE_H
#define WEFT_TRAIN_FORESEE_H
#include "model/generate.h"
#include "train/plan.h"
#include "train/pretrain.h"

struct step_wanted {
    const struct model_config *config;
    const struct optimizer_settings *optimizer;
    i64 rows, micro_rows, length; /* of the global batch, the largest of the run; a row's positions */
    bool recompute, fp8;
    enum dtype dtype;
    struct layout layout;
    i64 ranks;
    bool gpu, gpu_has_fp8;           /* memory as on one, and as on one that multiplies 8 bits */
    double flops_per_s, bytes_per_s; /* of a rank and its link, for `sums`; 0: not given */
};
struct step_needs {
    struct step_memory memory; /* of the rank that needs most */
    i64 worst_rank, parameters;
    double flops, traffic;    /* of a step: of all ranks; of the rank that sends most */
    struct bucket_times sums; /* of gradients, in a step of the rank that sends most of them */
};
/* As the settings say, of one rank, in bf16; the caller changes what it knows better. config is borrowed. */
struct step_wanted step_wanted_of(const struct pretrain_settings *settings, const struct model_config *config);
/* Adds to *needs (zeroed at first) what this rank needs. -1 and a message: sizes that do not go together. */
int step_foresee(struct step_needs *needs, const struct step_wanted *wanted, i64 rank);

/* Before the model is opened. -1 and a message where a GPU has less memory left than weights and their moments and
 * gradients take; a warning where activations, which follow the data, may be too much. Either says what would fit. */
int step_check_memory(const struct step_wanted *wanted, i64 rank, const struct device *device);

/* ---- Decoding ---- */

struct decoding_wanted {
    const struct decoder_options *options;
    const struct generate_request *requests;
    i64 count, seats;
    i64 columns;                                         /* of a seat; 0: as many as the largest request takes */
    bool fixed_length;                                   /* a picture is as large as it is */
    void (*begin)(void *context, struct answer *answer); /* what answers begin with; NULL: nothing */
    void *context;
};
/* Adds what a decoder of them takes, with a model like its own on the meta backend. */
void decoding_foresee(struct step_memory *out, const struct decoding_wanted *wanted, struct model *meta);
/* Before a decoder of a model that stands is opened: lowers `seats` to what fits into what is left. -1 and a message
 * where one at a time does not fit, which says what would. */
int decoding_check_memory(struct decoding_wanted *wanted);

#endif
