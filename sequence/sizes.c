#include "sequence/batch.h"

int token_sizes_check(const struct token_sizes *model, const struct token_sizes *given, const char *holder)
{
    const struct {
        const char *name;
        i64 model, given;
        bool fits; /* true if a smaller size fits the model */
    } rows[] = {
        {"ids of text", model->vocabulary, given->vocabulary, given->vocabulary <= model->vocabulary},
        {"bits of a vision token", model->bits, given->bits, false},
        {"scales of a picture", model->scales, given->scales, given->scales <= model->scales},
        {"features of a vision cell", model->cell_features, given->cell_features, false},
        {"pixel values of a vision cell", model->patch_values, given->patch_values, false},
        {"audio levels", model->levels, given->levels, false},
        {"audio codes", model->codes, given->codes, false},
    };
    if ((given->bits && !model->bits) || (given->cell_features && !model->cell_features))
        return error_set("%s holds pictures, which this model does not read: leave them out, or train a model on them",
                         holder);
    if (given->levels && !model->levels)
        return error_set("%s holds sounds, which this model does not read: leave them out, or train a model on them",
                         holder);
    for (i64 i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].given && rows[i].given != rows[i].model && !rows[i].fits)
            return error_set(
                "%s: %lld %s, the model has %lld: made with other tokenizers, they were not trained together", holder,
                (long long)rows[i].given, rows[i].name, (long long)rows[i].model);
    return 0;
}
