/* Use of bits and codes: counts, figures, and what stays dead. */
#include "tokenizer_training/code_use.h"

#include <math.h>
#include <stdio.h>

enum { DEAD_PER_MILLE = 10 };

void code_use_init(struct code_use *use, bool bits, i64 groups, i64 width)
{
    *use = (struct code_use){bits, groups, width, memory_alloc(groups * width * (i64)sizeof *use->uses),
                             memory_alloc(groups * (i64)sizeof *use->seen)};
}

void code_use_release(struct code_use *use)
{
    memory_free(use->uses);
    memory_free(use->seen);
    *use = (struct code_use){0};
}

void code_use_join(struct code_use *use, const struct code_use *other)
{
    for (i64 i = 0; i < other->groups * other->width; i++)
        use->uses[i] += other->uses[i];
    for (i64 g = 0; g < other->groups; g++)
        use->seen[g] += other->seen[g];
}

void code_use_add_bits(struct code_use *use, const u8 *bits, i64 latent_frames, const struct vision_shape *shape)
{
    for (i64 f = 0; f < latent_frames; f++)
        for (i64 k = 0; k < shape->scale_count; k++) {
            i64 positions = scale_positions(shape->scales[k]);
            for (i64 i = 0; i < positions * use->width; i++)
                use->uses[k * use->width + i % use->width] += *bits++;
            use->seen[k] += positions;
        }
}

void code_use_add_codes(struct code_use *use, const i32 *codes, const u8 *sounds, i64 frames)
{
    for (i64 f = 0; f < frames; f++)
        for (i64 level = 0; level < use->groups && sounds[f]; level++) {
            use->uses[level * use->width + codes[f * use->groups + level]]++;
            use->seen[level]++;
        }
}

bool code_use_is_dead(const struct code_use *use, i64 group, i64 at)
{
    i64 uses = use->uses[group * use->width + at], rare = use->bits ? min_i64(uses, use->seen[group] - uses) : uses;
    return use->bits ? rare * 1000 < DEAD_PER_MILLE * use->seen[group] || use->seen[group] == 0 : rare == 0;
}

i64 code_use_dead(const struct code_use *use, i64 group)
{
    i64 dead = 0;
    for (i64 i = 0; i < use->width; i++)
        dead += code_use_is_dead(use, group, i);
    return dead;
}

/* Share of the positions; its term of an entropy in nats. */
static double share_of(const struct code_use *use, i64 group, i64 at)
{
    return (double)use->uses[group * use->width + at] / (double)max_i64(use->seen[group], 1);
}

static double entropy_term(double p)
{
    return p > 0 ? -p * log(p) : 0;
}

double code_use_entropy(const struct code_use *use, i64 group)
{
    double sum = 0;
    for (i64 i = 0; i < use->width; i++) {
        double p = share_of(use, group, i);
        sum += (entropy_term(p) + entropy_term(1 - p)) / log(2);
    }
    return sum / (double)use->width;
}

double code_use_perplexity(const struct code_use *use, i64 group)
{
    double sum = 0;
    for (i64 i = 0; i < use->width; i++)
        sum += entropy_term(share_of(use, group, i));
    return exp(sum);
}

/* ---- what stays dead ---- */

void use_watch_open(struct use_watch *watch, const char *kind, i64 groups, i64 width)
{
    *watch = (struct use_watch){kind, memory_alloc(groups * width * (i64)sizeof *watch->dead), 0};
}

void use_watch_close(struct use_watch *watch)
{
    memory_free(watch->dead);
    *watch = (struct use_watch){0};
}

void use_watch_put(struct metrics *metrics, const struct use_watch *watch, int set, const struct code_use *use)
{
    static const char *const sets[USE_SETS] = {"training", "heldout"};
    for (i64 g = 0; g < use->groups; g++) {
        char name[96];
        int length = snprintf(name, sizeof name, "use/%s/%s/%lld/", watch->kind, sets[set], (long long)(g + use->bits));
        if (use->seen[g] == 0)
            continue;
        snprintf(name + length, sizeof name - (size_t)length, use->bits ? "entropy" : "perplexity");
        metrics_put(metrics, name, use->bits ? code_use_entropy(use, g) : code_use_perplexity(use, g));
        snprintf(name + length, sizeof name - (size_t)length, "dead");
        metrics_put(metrics, name, (double)code_use_dead(use, g));
    }
}

char *use_watch_look(struct use_watch *watch, const struct code_use *use)
{
    struct buffer by_group = {0};
    i64 all = 0;
    for (i64 g = 0; g < use->groups; g++) {
        i64 stay = 0;
        for (i64 i = 0; i < use->width; i++) {
            i64 *looks = &watch->dead[g * use->width + i];
            *looks = code_use_is_dead(use, g, i) ? *looks + 1 : 0;
            stay += *looks >= USE_LOOKS;
        }
        buffer_printf(&by_group, " %lld", (long long)stay);
        all += stay;
    }
    char *out = NULL;
    if (all > watch->told) {
        watch->told = all;
        out = string_format("%lld of %lld %s stay dead in training media, by %s%s: they say nothing; %s",
                            (long long)all, (long long)(use->groups * use->width), use->bits ? "bits" : "codes",
                            use->bits ? "scale" : "level", by_group.data,
                            use->bits ? "`centre: true` makes them even"
                                      : "a `revival` above 0, more sounds or fewer codes may serve better");
    }
    buffer_release(&by_group);
    return out;
}
