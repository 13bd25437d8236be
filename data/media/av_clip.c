/* Reads clips through libav. */
#include "data/media/av_input.h"
#include "data/media/av_scale.h"
#include <math.h>
#include <string.h>

/* Picks the frames of a clip from a video. */
struct frame_picker {
    struct av_input input;
    struct scaler scaler;
    struct clip_request request;
    struct clip *out;
    i64 capacity;   /* allocated, in frames */
    AVFrame *held;  /* the frame before the input's current one */
    double held_s;  /* its time since the first frame */
    bool held_kept; /* it is already the last frame of out */
    i64 first;      /* timestamp of the first frame, in stream units */
    i64 decoded;    /* frames decoded so far */
    bool sought;    /* decoding began after a seek, not at the first frame */
};

static bool picker_full(const struct frame_picker *picker)
{
    return picker->request.max_frames > 0 && picker->out->frames >= picker->request.max_frames;
}

/* Pixel aspect ratio; the container's value takes precedence over the stream's. */
static AVRational pixel_shape(const struct av_input *input, AVFrame *frame)
{
    return av_guess_sample_aspect_ratio(input->format, input->stream, frame);
}

/* Sets the output size. Without one in the request, the first frame's stored size is used and
 * pixels keep their aspect ratio. */
static void choose_size(struct frame_picker *picker, const AVFrame *frame, struct orientation turn)
{
    struct clip *out = picker->out;
    out->height = picker->request.height;
    out->width = picker->request.width;
    if (!out->height) {
        out->height = turn.transposed ? frame->width : frame->height;
        out->width = turn.transposed ? frame->height : frame->width;
    }
}

/* Makes room for one more frame. If max_frames is known and small, all of them are allocated at
 * once, because growing copies. */
static int reserve_frame(struct frame_picker *picker)
{
    enum { AT_ONCE_BYTES = 1 << 25 };
    struct clip *out = picker->out;
    i64 frame_bytes = out->height * out->width * 3;
    if (out->frames < picker->capacity)
        return 0;
    if ((out->frames + 1) * frame_bytes > CLIP_BYTES_MAX)
        return error_set("%s: longer than %lld frames of %lldx%lld, the most that are held at once; ask for fewer or "
                         "smaller frames, or cut the file",
                         picker->input.origin, (long long)out->frames, (long long)out->height, (long long)out->width);
    i64 wanted = max_i64(16, picker->capacity * 2);
    if (picker->request.max_frames > 0)
        wanted = min_i64(max_i64(wanted, AT_ONCE_BYTES / frame_bytes), picker->request.max_frames);
    wanted = min_i64(wanted, CLIP_BYTES_MAX / frame_bytes);
    out->pixels = memory_resize(out->pixels, picker->capacity * frame_bytes, wanted * frame_bytes);
    picker->capacity = wanted;
    return 0;
}

static int keep_frame(struct frame_picker *picker, AVFrame *frame)
{
    struct clip *out = picker->out;
    const struct image_request limits = {picker->scaler.rules};
    if (picture_check_size(frame->height, frame->width, picker->input.origin, &limits) < 0)
        return -1;
    struct orientation turn = orientation_of(frame, picker->input.stream);
    frame->sample_aspect_ratio = picker->request.height ? pixel_shape(&picker->input, frame) : (AVRational){1, 1};
    if (!out->height)
        choose_size(picker, frame, turn);
    if (reserve_frame(picker) < 0)
        return -1;
    u8 *pixels = out->pixels + out->frames * out->height * out->width * 3;
    int location = (int)frame->chroma_location;
    if (location == AVCHROMA_LOC_UNSPECIFIED)
        location = picker->input.stream ? AVCHROMA_LOC_LEFT : AVCHROMA_LOC_CENTER;
    int code = scale_frame(pixels, out->height, out->width, &picker->scaler, frame, turn, location);
    if (code < 0)
        return av_problem(picker->input.origin, "a frame could not be scaled", code);
    if (out->frames++ == 0) {
        i64 height = turn.transposed ? picker->scaler.key.out_width : picker->scaler.key.out_height;
        i64 width = turn.transposed ? picker->scaler.key.out_height : picker->scaler.key.out_width;
        out->inner_height = min_i64(height, out->height);
        out->inner_width = min_i64(width, out->width);
        out->cut = 1 - (double)(out->inner_height * out->inner_width) / (double)(height * width);
    }
    return 0;
}

static double next_time(const struct frame_picker *picker)
{
    return picker->request.from_s + (double)picker->out->frames / picker->request.rate_hz;
}

/* Keeps the held frame for every wanted time before until_s. Repeats are copied. */
static int keep_held(struct frame_picker *picker, double until_s)
{
    struct clip *out = picker->out;
    while (!picker_full(picker) && next_time(picker) < until_s) {
        if (!picker->held_kept) {
            if (keep_frame(picker, picker->held) < 0)
                return -1;
            picker->held_kept = true;
            continue;
        }
        if (reserve_frame(picker) < 0)
            return -1;
        i64 frame_bytes = out->height * out->width * 3;
        memcpy(out->pixels + out->frames * frame_bytes, out->pixels + (out->frames - 1) * frame_bytes,
               (size_t)frame_bytes);
        out->frames++;
    }
    return 0;
}

static double frame_rate(const struct av_input *input)
{
    AVRational rate = av_guess_frame_rate(input->format, input->stream, NULL);
    return rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 25;
}

static double stated_duration(const struct av_input *input, const AVFrame *frame)
{
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 30, 100)
    return (double)frame->duration * av_q2d(input->stream->time_base);
#else
    return (double)frame->pkt_duration * av_q2d(input->stream->time_base);
#endif
}

/* Display time of the last frame: its stated duration, unless that is within 10 % of the file's
 * frame period and so only that period, rounded. */
static double last_duration(const struct av_input *input, const AVFrame *frame)
{
    double usual_s = 1 / frame_rate(input), stated_s = stated_duration(input, frame);
    return stated_s > 0 && fabs(stated_s / usual_s - 1) > 0.1 ? stated_s : usual_s;
}

/* Seconds since the first frame. Files without timestamps count by their frame rate. Time never
 * runs backwards. */
static double frame_time(const struct frame_picker *picker, i64 index, double before_s)
{
    const struct av_input *input = &picker->input;
    i64 stamp = input->frame->best_effort_timestamp;
    double time_s = stamp == AV_NOPTS_VALUE || picker->first == AV_NOPTS_VALUE
                        ? (double)index / frame_rate(input)
                        : ((double)stamp - (double)picker->first) * av_q2d(input->stream->time_base);
    return fmax(time_s, before_s);
}

/* Decodes the next frame and its time. Damage before from_s is not counted: after a seek, frames
 * there may refer to others in front of the key frame. */
static int next_frame(double *time_s, struct frame_picker *picker, double before_s)
{
    struct av_input *input = &picker->input;
    int more = input_next(input);
    if (more <= 0)
        return more;
    if (picker->decoded++ == 0 && !picker->sought)
        picker->first = input->frame->best_effort_timestamp;
    *time_s = frame_time(picker, picker->decoded - 1, before_s);
    if (picker->out->frames == 0 && *time_s < picker->request.from_s)
        input->packets = input->damaged = 0;
    return 1;
}

/* Seeks to the key frame at or before from_s, if timestamps and an index allow it; otherwise
 * everything in front is decoded. */
static void seek(struct frame_picker *picker)
{
    struct av_input *input = &picker->input;
    AVRational base = input->stream->time_base;
    if (picker->request.from_s <= 0 || input->stream->start_time == AV_NOPTS_VALUE)
        return;
    i64 wanted = input->stream->start_time + (i64)(picker->request.from_s / av_q2d(base));
    if (input_seek(input, input->stream->index, wanted) < 0)
        return;
    picker->first = input->stream->start_time;
    picker->sought = true;
}

/* Picks frames nearest in time: a frame covers the wanted times up to halfway to the next frame. */
static int pick_by_time(struct frame_picker *picker)
{
    struct av_input *input = &picker->input;
    double time_s;
    bool any = false;
    int more = 0;
    while (!picker_full(picker) && (more = next_frame(&time_s, picker, picker->held_s)) > 0) {
        if (any && keep_held(picker, (picker->held_s + time_s) / 2) < 0)
            return -1;
        av_frame_unref(picker->held);
        av_frame_move_ref(picker->held, input->frame);
        picker->held_s = time_s;
        picker->held_kept = false;
        any = true;
    }
    if (more < 0)
        return -1;
    enum { MICROSECONDS = 1000000 }; /* times are rounded: the end must not yield an extra frame */
    return any ? keep_held(picker, picker->held_s + last_duration(input, picker->held) - 1.0 / MICROSECONDS) : 0;
}

static int pick_every(struct frame_picker *picker)
{
    int more = 0;
    double time_s = 0;
    while (!picker_full(picker) && (more = next_frame(&time_s, picker, time_s)) > 0) {
        if (time_s < picker->request.from_s)
            continue;
        if (keep_frame(picker, picker->input.frame) < 0)
            return -1;
        picker->out->seconds = time_s - picker->request.from_s + 1 / picker->out->rate_hz;
    }
    return more;
}

static int open_video(struct av_input *input, const void *bytes, i64 count, const char *origin,
                      const struct picture_rules *rules)
{
    const struct file_kind *kind = clip_kind_of(bytes, count);
    if (!kind)
        return error_set("%s: expected a video (MP4, MOV, MKV, WebM, AVI, Ogg, GIF, APNG, WebP), found %s", origin,
                         file_describe(bytes, count));
    if (input_open(input, bytes, count, origin, kind) < 0)
        return -1;
    input->most_pixels = rules->most_pixels;
    if (strcmp(kind->reader, "mov") == 0 && boxes_hide_transparency(bytes, count))
        return error_set(
            "%s: %s with transparency in a second picture, which is not read; convert it to VP9, ProRes or "
            "an animated WebP",
            origin, kind->name);
    return input_select(input, AVMEDIA_TYPE_VIDEO);
}

static int no_frames(const struct av_input *input)
{
    return error_set("%s: %s without video frames", input->origin, input->kind->name);
}

static int pick(struct frame_picker *picker, const void *bytes, i64 count, const char *origin)
{
    if (open_video(&picker->input, bytes, count, origin, picker->scaler.rules) < 0)
        return -1;
    seek(picker);
    bool by_time = picker->request.rate_hz > 0;
    picker->out->rate_hz = by_time ? picker->request.rate_hz : frame_rate(&picker->input);
    if ((by_time ? pick_by_time(picker) : pick_every(picker)) < 0 || input_check_damage(&picker->input) < 0)
        return -1;
    if (by_time)
        picker->out->seconds = (double)picker->out->frames / picker->request.rate_hz;
    if (!picker->out->frames && picker->request.from_s > 0)
        return error_set("%s: its video ends before %g s", origin, picker->request.from_s);
    return picker->out->frames ? 0 : no_frames(&picker->input);
}

static bool is_webp(const void *bytes, i64 count)
{
    const struct file_kind *kind = clip_kind_of(bytes, count);
    return kind && kind->class == FILE_STILL;
}

int clip_read(struct clip *out, const void *bytes, i64 count, const char *origin, const struct clip_request *request)
{
    require((request->height > 0) == (request->width > 0), "a clip is asked for with both sizes or none");
    *out = (struct clip){0};
    if (is_webp(bytes, count))
        return webp_clip_read(out, bytes, count, origin, request);
    struct frame_picker picker = {.request = *request, .out = out, .held = av_frame_alloc()};
    require_memory(picker.held, "libav");
    picker.scaler.rules = request->rules ? request->rules : &picture_rules_usual;
    picker.scaler.crop = request->crop;
    int status = pick(&picker, bytes, count, origin);
    if (request->decoded)
        *request->decoded += picker.decoded;
    input_close(&picker.input);
    scaler_release(&picker.scaler);
    av_frame_free(&picker.held);
    if (status < 0)
        clip_release(out);
    return status;
}

int clip_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin,
                    const struct picture_rules *rules)
{
    if (is_webp(bytes, count))
        return webp_shown_size(height, width, bytes, count, origin);
    struct av_input input = {0};
    int status = open_video(&input, bytes, count, origin, rules ? rules : &picture_rules_usual);
    if (status == 0)
        status = input_next(&input);
    if (status == 0)
        no_frames(&input);
    if (status > 0) {
        input.frame->sample_aspect_ratio = pixel_shape(&input, input.frame);
        shown_shape(height, width, input.frame, orientation_of(input.frame, input.stream));
    }
    input_close(&input);
    return status > 0 ? 0 : -1;
}

int media_seconds(double *out, const void *bytes, i64 count, const char *origin)
{
    struct av_input input = {0};
    const struct file_kind *kind = clip_kind_of(bytes, count);
    *out = 0;
    if (!kind)
        kind = file_kind_of(bytes, count);
    if (!kind)
        return error_set("%s: expected a clip or a sound, found %s", origin, file_describe(bytes, count));
    if (is_webp(bytes, count))
        return 0;
    int status = input_open(&input, bytes, count, origin, kind);
    AVStream *stream = status == 0 ? input_best_stream(&input, AVMEDIA_TYPE_VIDEO) : NULL;
    if (status == 0 && !stream)
        stream = input_best_stream(&input, AVMEDIA_TYPE_AUDIO);
    if (stream && input_jumps(&input, stream->index, out))
        ; /* more than the stated times */
    else if (stream && stream->duration > 0)
        *out = (double)stream->duration * av_q2d(stream->time_base);
    else if (status == 0 && input.format->duration > 0)
        *out = (double)input.format->duration / AV_TIME_BASE;
    input_close(&input);
    return status;
}
