#include "sequence/modalities.h"

#include <stddef.h>
#include <string.h>

const char *const tokenizer_names[TOKENIZERS] = {
    [TOKENIZER_TEXT] = "text", [TOKENIZER_VISION] = "vision", [TOKENIZER_AUDIO] = "audio"};

#define SIZE(name) .member = offsetof(struct token_sizes, name)
const struct token_size_row token_size_rows[TOKEN_SIZE_ROWS] = {
    {SIZE(vocabulary), TOKENIZER_TEXT, "ids of text", "vocabulary", NULL, INT32_MAX, .may_be_smaller = true},
    {SIZE(bits), TOKENIZER_VISION, "bits of a vision token", "bits", "vision_bits", 1 << 12},
    {SIZE(scales), TOKENIZER_VISION, "scales of a picture", NULL, "vision_scales", 1 << 10, .may_be_smaller = true},
    {SIZE(cell_features), TOKENIZER_VISION, "features of a vision cell", "cell_features", "cell_features", 1 << 16},
    {SIZE(stride), TOKENIZER_VISION, NULL, "stride", NULL, 256},
    {SIZE(patch_values), TOKENIZER_VISION, "pixel values of a vision cell", NULL, "patch_values", 1 << 20},
    {SIZE(levels), TOKENIZER_AUDIO, "audio levels", "levels", "audio_levels", 32},
    {SIZE(codes), TOKENIZER_AUDIO, "audio codes", "codes", "audio_codes", 1 << 16},
    {SIZE(voice), TOKENIZER_AUDIO, "values of a speaker vector", "voice", "voice_values", 1 << 12, .optional = true},
};

const struct modality_row modality_rows[MODALITIES] = {
    [MODALITY_TEXT] = {.name = "text",
                       .one = "text",
                       .many = "texts",
                       .suffixes = "txt text transcript caption",
                       .ending = "txt",
                       .tokenizer = TOKENIZER_TEXT},
    /* Pictures beside clips are thumbnails, so a clip leads. */
    [MODALITY_IMAGE] = {.name = "image",
                        .one = "picture",
                        .many = "pictures",
                        .suffixes =
                            "jpg jpeg jpe jif jfif png apng webp bmp dib ppm pgm tif tiff gif heic heif hif avif",
                        .unread = "jxl jp2 j2k jpx svg psd xcf tga ico dds exr hdr pbm pam pnm qoi avifs "
                                  "cr2 cr3 nef arw dng orf rw2 raf",
                        .members = "jpg jpeg png webp",
                        .ending = "png",
                        .prompt = "picture of the prompt; media keep the order of the arguments",
                        .tokenizer = TOKENIZER_VISION,
                        .list_key = "images",
                        .url_key = "image_url",
                        .mark = "<image>",
                        .captioned = "captioned picture",
                        .leads = 2},
    [MODALITY_VIDEO] = {.name = "video",
                        .one = "clip",
                        .many = "clips",
                        .suffixes =
                            "mp4 m4v webm mkv mov qt avi flv f4v ogv ogm 3gp 3g2 mpg mpeg mpe vob ts m2ts mts wmv",
                        .unread = "asf rm rmvb m2v m1v mxf dv divx h264 h265 hevc ivf y4m",
                        .members = "mp4 webm",
                        .ending = "mp4",
                        .prompt = "video clip of the prompt; media keep the order of the arguments",
                        .tokenizer = TOKENIZER_VISION,
                        .lasts = true,
                        .list_key = "videos",
                        .url_key = "video_url",
                        .mark = "<video>",
                        .captioned = "captioned clip",
                        .leads = 1},
    [MODALITY_AUDIO] = {.name = "audio",
                        .one = "sound",
                        .many = "sounds",
                        .suffixes =
                            "wav wave rf64 flac mp3 ogg oga opus spx m4a m4b m4r aac aif aiff aifc au snd caf w64 mka "
                            "weba wma",
                        .unread = "mp2 mpga amr awb ac3 eac3 dts ape mpc wv tta tak ra mid midi aax gsm",
                        .members = "wav flac mp3 ogg",
                        .ending = "wav",
                        .prompt = "sound of the prompt; media keep the order of the arguments",
                        .tokenizer = TOKENIZER_AUDIO,
                        .lasts = true,
                        .list_key = "audios",
                        .url_key = "audio_url",
                        .mark = "<audio>",
                        .captioned = "captioned sound",
                        .leads = 3},
};

const struct direction_row direction_rows[DIRECTIONS] = {
    [DIRECTION_TEXT] = {"text", MODALITY_TEXT},
    [DIRECTION_IMAGE_IN] = {"image-in", MODALITY_IMAGE},
    [DIRECTION_IMAGE_OUT] = {"image-out", MODALITY_IMAGE, .makes = true},
    [DIRECTION_VIDEO_IN] = {"video-in", MODALITY_VIDEO},
    [DIRECTION_VIDEO_OUT] = {"video-out", MODALITY_VIDEO, .makes = true},
    [DIRECTION_AUDIO_IN] = {"audio-in", MODALITY_AUDIO},
    [DIRECTION_AUDIO_OUT] = {"audio-out", MODALITY_AUDIO, .makes = true},
    [DIRECTION_CHAT] = {"chat", MODALITIES},
};

#define WIDTH(times, name)                                                                                             \
    {                                                                                                                  \
        times, offsetof(struct token_sizes, name)                                                                      \
    }
#define ONE                                                                                                            \
    {                                                                                                                  \
        1, WIDTH_FIXED                                                                                                 \
    }
/* A position of vision-in shows 2 x 2 cells. */
const struct input_row input_rows[INPUTS] = {
    [INPUT_TEXT] = {.ids = ONE},
    [INPUT_VISION_IN] = {.features = WIDTH(4, cell_features), .pixels = WIDTH(4, patch_values)},
    [INPUT_VISION_OUT] = {.features = WIDTH(1, bits), .scaled = true},
    [INPUT_AUDIO] = {.ids = WIDTH(1, levels), .by_level = true},
    [INPUT_VOICE] = {.features = WIDTH(1, voice)},
};

const struct target_row target_rows[TARGETS] = {
    [TARGET_TEXT] = {"text", .ids = ONE, .classes = WIDTH(1, vocabulary), .counted = TARGET_TEXT},
    [TARGET_MTP] = {"mtp", .ids = ONE, .classes = WIDTH(1, vocabulary), .helps = true, .counted = TARGET_TEXT},
    [TARGET_VISION] = {"vision", .bits = WIDTH(1, bits), .counted = TARGET_VISION},
    [TARGET_AUDIO] = {"audio", .ids = WIDTH(1, levels), .classes = WIDTH(1, codes), .ends = 1, .by_level = true,
                      .counted = TARGET_AUDIO},
};

const char *const bracket_tokens[BRACKETS] = {
    [BRACKET_BOI] = "<|boi|>", [BRACKET_EOI] = "<|eoi|>",   [BRACKET_BOV] = "<|bov|>",
    [BRACKET_EOV] = "<|eov|>", [BRACKET_NEXT] = "<|next|>", [BRACKET_BOA] = "<|boa|>"};

const struct stream_row stream_rows[STREAMS] = {
    [STREAM_TEXT] = {.name = "text",
                     .modality = MODALITY_TEXT,
                     .form = FORM_IDS,
                     .begin = BRACKETS,
                     .end = BRACKETS,
                     .input = INPUT_TEXT,
                     .target = TARGET_TEXT,
                     .colour = 0x000000},
    [STREAM_IMAGE_IN] = {.name = "image-in",
                         .modality = MODALITY_IMAGE,
                         .form = FORM_CELLS,
                         .gives = true,
                         .begin = BRACKET_BOI,
                         .end = BRACKET_EOI,
                         .input = INPUT_VISION_IN,
                         .target = TARGETS,
                         .colour = 0x0072b2},
    [STREAM_VIDEO_IN] = {.name = "video-in",
                         .modality = MODALITY_VIDEO,
                         .form = FORM_CELLS,
                         .gives = true,
                         .moves = true,
                         .begin = BRACKET_BOV,
                         .end = BRACKET_EOV,
                         .input = INPUT_VISION_IN,
                         .target = TARGETS,
                         .colour = 0x56b4e9},
    [STREAM_IMAGE_OUT] = {.name = "image-out",
                          .modality = MODALITY_IMAGE,
                          .form = FORM_SCALES,
                          .begin = BRACKET_BOI,
                          .end = BRACKET_EOI,
                          .input = INPUT_VISION_OUT,
                          .target = TARGET_VISION,
                          .colour = 0xd55e00},
    [STREAM_VIDEO_OUT] = {.name = "video-out",
                          .modality = MODALITY_VIDEO,
                          .form = FORM_SCALES,
                          .moves = true,
                          .begin = BRACKET_BOV,
                          .end = BRACKET_EOV,
                          .input = INPUT_VISION_OUT,
                          .target = TARGET_VISION,
                          .colour = 0xe69f00},
    [STREAM_AUDIO] = {.name = "audio",
                      .modality = MODALITY_AUDIO,
                      .form = FORM_CODES,
                      .gives = true,
                      .begin = BRACKET_BOA,
                      .end = BRACKETS,
                      .input = INPUT_AUDIO,
                      .target = TARGET_AUDIO,
                      .colour = 0x009e73},
};

enum modality modality_named(const char *name)
{
    int i = 0;
    while (i < MODALITIES && strcmp(modality_rows[i].name, name) != 0)
        i++;
    return (enum modality)i;
}

enum direction direction_of(enum modality modality, bool makes)
{
    int d = 0;
    while (d < DIRECTIONS && (direction_rows[d].modality != modality || direction_rows[d].makes != makes))
        d++;
    return (enum direction)d;
}

enum stream stream_of_form(enum stream_form form, bool moves)
{
    int stream = 0;
    while (stream < STREAMS && (stream_rows[stream].form != form || stream_rows[stream].moves != moves))
        stream++;
    return (enum stream)stream;
}

bool modality_has_form(enum modality modality, enum stream_form form)
{
    for (int stream = 0; stream < STREAMS; stream++)
        if (stream_rows[stream].modality == modality && stream_rows[stream].form == form)
            return true;
    return false;
}

void modality_names(struct buffer *out, const char *between, const char *last)
{
    for (int i = 0; i < MODALITIES; i++)
        buffer_printf(out, "%s%s", i == 0 ? "" : i + 1 < MODALITIES ? between : last, modality_rows[i].name);
}

i64 list_width(struct list_width width, const struct token_sizes *sizes)
{
    if (width.times == 0 || width.member == WIDTH_FIXED)
        return width.times;
    return width.times * *(const i64 *)(const void *)((const char *)sizes + width.member);
}

bool input_is_read(const struct token_sizes *sizes, enum input_kind kind)
{
    return list_width(input_rows[kind].ids, sizes) || list_width(input_rows[kind].features, sizes);
}

i64 target_levels(enum target_kind kind, const struct token_sizes *sizes)
{
    return target_rows[kind].by_level ? list_width(target_rows[kind].ids, sizes) : 1;
}

/* A tokenizer's data that the model was trained without. */
static int refuse_modality(enum tokenizer_kind tokenizer, const char *holder)
{
    int m = 0;
    while (modality_rows[m].tokenizer != tokenizer)
        m++;
    return error_set("%s holds %s, which this model does not read: leave them out, or train a model on them", holder,
                     modality_rows[m].many);
}

int token_sizes_check(const struct token_sizes *model, const struct token_sizes *given, const char *holder)
{
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        bool lacks = row->what && token_size_of(given, row) && !token_size_of(model, row);
        if (lacks && row->tokenizer != TOKENIZER_TEXT && !row->optional)
            return refuse_modality(row->tokenizer, holder);
        if (lacks && row->optional)
            return error_set("%s holds %s, which this model does not read: prepare it without, or train a model on it",
                             holder, row->what);
    }
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        i64 ours = token_size_of(model, row), theirs = token_size_of(given, row);
        if (row->what && theirs && theirs != ours && !(row->may_be_smaller && theirs < ours))
            return error_set(
                "%s: %lld %s, the model has %lld: made with other tokenizers, they were not trained together", holder,
                (long long)theirs, row->what, (long long)ours);
    }
    return 0;
}
