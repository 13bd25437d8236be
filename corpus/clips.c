/* Short H.264 clips of a moving, growing or turning glyph, each with a descriptive sentence. */
#include "corpus/corpus.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FRAMES = 9, SUPERSAMPLES = 4 };
static const double frame_rate_hz = 8;

/* Position of a glyph in a frame. Lengths are fractions of the picture's side; y points down. */
struct pose {
    double x, y, size, turn; /* centre; side of the glyph's square; clockwise radians */
};

struct clip_plan {
    const struct glyph *glyph;
    enum motion motion;
    enum split split;
    char file[24];
};

static double draw(struct rng_key key, i64 item, u32 which, double from, double to)
{
    return from + (to - from) * rng_uniform(key, DRAW_MOTION, (u32)item, which, 1);
}

/* Draws the first and last pose. Random size and place make every motion differ; the glyph stays
 * almost entirely inside the picture. */
static void choose_poses(struct pose poses[2], enum motion motion, struct rng_key key, i64 item)
{
    double way = draw(key, item, 0, 0.18, 0.26), small = draw(key, item, 1, 0.3, 0.4),
           large = draw(key, item, 2, 0.8, 0.95);
    struct pose still = {0.5 + draw(key, item, 3, -0.06, 0.06), 0.5 + draw(key, item, 4, -0.06, 0.06),
                         draw(key, item, 5, 0.5, 0.6), 0};
    poses[0] = poses[1] = still;
    switch (motion) {
    case MOVE_LEFT:
    case MOVE_RIGHT:
        poses[motion == MOVE_LEFT].x = 0.5 - way;
        poses[motion == MOVE_RIGHT].x = 0.5 + way;
        break;
    case MOVE_UP:
    case MOVE_DOWN:
        poses[motion == MOVE_UP].y = 0.5 - way;
        poses[motion == MOVE_DOWN].y = 0.5 + way;
        break;
    case GROW:
    case SHRINK:
        poses[motion == SHRINK].size = small;
        poses[motion == GROW].size = large;
        break;
    case TURN_CLOCKWISE:
    case TURN_ANTICLOCKWISE:
        poses[0].size = poses[1].size = still.size + 0.1;
        poses[1].turn = motion == TURN_CLOCKWISE ? M_PI / 2 : -M_PI / 2;
        break;
    }
}

static struct pose pose_at(const struct pose poses[2], double share)
{
    return (struct pose){poses[0].x + (poses[1].x - poses[0].x) * share, poses[0].y + (poses[1].y - poses[0].y) * share,
                         poses[0].size + (poses[1].size - poses[0].size) * share,
                         poses[0].turn + (poses[1].turn - poses[0].turn) * share};
}

/* Adds the nearest source pixel at (x, y). The sample points are at most about 1 source pixel
 * apart, so no filter is needed. Outside the picture is white. */
static void add_point(i64 sum[3], const struct clip *picture, double x, double y)
{
    bool inside = x >= 0 && y >= 0 && x < (double)picture->width && y < (double)picture->height;
    const u8 *pixel = picture->pixels + (inside ? ((i64)y * picture->width + (i64)x) * 3 : 0);
    for (int c = 0; c < 3; c++)
        sum[c] += inside ? pixel[c] : 255;
}

/* Renders one pixel: the mean over a grid of sample points, each mapped back into the glyph's
 * square. */
static void draw_pixel(u8 out[3], const struct clip *picture, const struct pose *pose, i64 y, i64 x, i64 side)
{
    enum { POINTS = SUPERSAMPLES * SUPERSAMPLES };
    i64 sum[3] = {0};
    double cosine = cos(pose->turn), sine = sin(pose->turn), zoom = (double)picture->width / pose->size;
    for (int s = 0; s < POINTS; s++) {
        double across = ((double)x + (s % SUPERSAMPLES + 0.5) / SUPERSAMPLES) / (double)side - pose->x;
        double down = ((double)y + (s / SUPERSAMPLES + 0.5) / SUPERSAMPLES) / (double)side - pose->y;
        double u = (across * cosine + down * sine) * zoom, v = (down * cosine - across * sine) * zoom;
        add_point(sum, picture, u + (double)picture->width / 2, v + (double)picture->height / 2);
    }
    for (int c = 0; c < 3; c++)
        out[c] = (u8)((sum[c] + POINTS / 2) / POINTS);
}

static void draw_frames(struct clip *out, const struct clip *picture, const struct pose poses[2])
{
    i64 side = out->height;
    for (i64 f = 0; f < out->frames; f++) {
        struct pose pose = pose_at(poses, (double)f / (double)(out->frames - 1));
        u8 *frame = out->pixels + f * side * side * 3;
        for (i64 i = 0; i < side * side; i++)
            draw_pixel(frame + i * 3, picture, &pose, i / side, i % side, side);
    }
}

struct clips {
    const struct corpus *corpus;
    struct clip_plan *plans;
    struct font *fonts; /* one per worker */
};

static int make_clip(void *context, i64 item, int worker)
{
    const struct clips *clips = context;
    const struct clip_plan *take = &clips->plans[item];
    struct clip picture, clip;
    struct pose poses[2];
    struct buffer mp4 = {0};
    if (font_picture(&picture, NULL, &clips->fonts[worker], take->glyph->index) < 0)
        return -1;
    choose_poses(poses, take->motion, clips->corpus->key, item);
    clip_init(&clip, FRAMES, clips->corpus->size, clips->corpus->size, frame_rate_hz);
    draw_frames(&clip, &picture, poses);
    char *name = path_join("video", take->file);
    int status = clip_encode_mp4(&mp4, &clip);
    if (status == 0)
        status = corpus_save(clips->corpus, take->split, name, mp4.data, mp4.length);
    memory_free(name);
    buffer_release(&mp4);
    clip_release(&picture);
    clip_release(&clip);
    return status;
}

static i64 find_nouns(const struct glyph **out, const struct glyph_list *list, enum split split)
{
    i64 count = 0;
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].split == split && list->items[i].noun)
            out[count++] = &list->items[i];
    return count;
}

/* Plans the clips of one split. Each glyph is shown in 2 motions, or more if there are few glyphs;
 * no pair repeats before all pairs were used. */
static i64 plan_clips(struct clip_plan *plans, const struct corpus *corpus, const struct glyph_list *list,
                      enum split split)
{
    const struct glyph **nouns = memory_alloc(list->count * (i64)sizeof *nouns);
    i64 count = find_nouns(nouns, list, split), wanted = count ? split_count(corpus->clips, split) : 0;
    i64 rounds = max_i64(2, ceil_div(wanted, max_i64(count, 1)));
    i32 *order = memory_alloc(max_i64(count, 1) * (i64)sizeof *order);
    rng_permutation(order, count, corpus->key, DRAW_MOTION, (u32)split);
    for (i64 i = 0; i < wanted; i++) {
        i64 which = i / rounds, first = (which * 3 + split) % MOTIONS;
        plans[i] = (struct clip_plan){.glyph = nouns[order[which % count]], .split = split};
        /* An odd step visits all motions. */
        plans[i].motion = (enum motion)((first + i % rounds * (2 * (which % 4) + 1)) % MOTIONS);
    }
    if (wanted == 0)
        log_warn("no clips for %s: none of its glyphs can be named in a sentence; ask for more --glyphs",
                 split_names[split]);
    memory_free(order);
    memory_free(nouns);
    return wanted;
}

static void caption_clip(struct corpus *corpus, const struct clip_plan *take)
{
    char *sentence =
        string_format("the %s %s, %s", take->glyph->caption, motion_phrases[take->motion], take->glyph->looks);
    corpus_caption(corpus, take->split, VIDEO, take->file, sentence, NULL);
    memory_free(sentence);
}

int make_clips(struct corpus *corpus, const struct glyph_list *list, const struct font_file *file)
{
    struct clips clips = {.corpus = corpus};
    clips.plans = memory_alloc((corpus->clips + SPLITS) * (i64)sizeof *clips.plans);
    i64 count = 0;
    for (enum split split = 0; split < SPLITS; split++)
        count += plan_clips(clips.plans + count, corpus, list, split);
    for (i64 i = 0; i < count; i++) {
        snprintf(clips.plans[i].file, sizeof clips.plans[i].file, "%05lld.mp4", (long long)i);
        caption_clip(corpus, &clips.plans[i]);
    }
    int status = fonts_open(&clips.fonts, file);
    if (status == 0)
        status = run_items("clips", count, make_clip, &clips);
    fonts_close(clips.fonts);
    memory_free(clips.plans);
    return status;
}
