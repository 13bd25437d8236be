/* Reads WebP through libwebp: stills, and animations as clips. Writes lossy stills. */
#include "data/media/picture.h"
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>

static int refuse(const char *origin)
{
    return error_set("%s: a WebP picture: damaged, libwebp cannot decode it; copy it again", origin);
}

/* ---- Stills ---- */

/* Decodes a still. The first frame of an animation may be smaller than its canvas, so animations go
 * through read_first. */
static int read_still(struct picture *out, const WebPData *file, const char *origin)
{
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(file->bytes, file->size, &features) != VP8_STATUS_OK)
        return refuse(origin);
    *out = (struct picture){features.has_alpha ? INKS_RGBA : INKS_RGB, features.height, features.width};
    i64 row_bytes = out->width * (features.has_alpha ? 4 : 3), all_bytes = out->height * row_bytes;
    out->pixels = memory_alloc(all_bytes);
    u8 *done = features.has_alpha
                   ? WebPDecodeRGBAInto(file->bytes, file->size, out->pixels, (size_t)all_bytes, (int)row_bytes)
                   : WebPDecodeRGBInto(file->bytes, file->size, out->pixels, (size_t)all_bytes, (int)row_bytes);
    return done ? 0 : refuse(origin);
}

static WebPAnimDecoder *open_animation(const WebPData *file)
{
    WebPAnimDecoderOptions options;
    require(WebPAnimDecoderOptionsInit(&options), "libwebp is not the one that this program was built with");
    options.color_mode = MODE_RGBA;
    options.use_threads = 0;
    return WebPAnimDecoderNew(file, &options);
}

static int read_first(struct picture *out, const WebPData *file, i64 height, i64 width, const char *origin)
{
    WebPAnimDecoder *decoder = open_animation(file);
    u8 *canvas;
    int time_ms, status = decoder && WebPAnimDecoderGetNext(decoder, &canvas, &time_ms) ? 0 : refuse(origin);
    if (status == 0) {
        *out = (struct picture){INKS_RGBA, height, width, .pixels = memory_alloc(height * width * 4)};
        memcpy(out->pixels, canvas, (size_t)(height * width * 4));
    }
    WebPAnimDecoderDelete(decoder);
    return status;
}

static void take_chunk(struct buffer *out, const WebPDemuxer *demuxer, const char *name)
{
    WebPChunkIterator chunk;
    if (WebPDemuxGetChunk(demuxer, name, 1, &chunk))
        buffer_append(out, chunk.chunk.bytes, (i64)chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
}

static void take_notes(struct picture *out, const WebPDemuxer *demuxer)
{
    struct buffer exif = {0};
    take_chunk(&out->profile, demuxer, "ICCP");
    take_chunk(&exif, demuxer, "EXIF");
    out->orientation = exif_orientation((const u8 *)exif.data, exif.length);
    buffer_release(&exif);
}

int webp_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request)
{
    *out = (struct picture){0};
    WebPData file = {bytes, (size_t)count};
    WebPDemuxer *demuxer = WebPDemux(&file);
    if (!demuxer)
        return refuse(origin);
    i64 height = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT), width = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
    bool animated = WebPDemuxGetI(demuxer, WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG;
    int status = picture_check_size(height, width, origin, request);
    if (status == 0)
        status = animated ? read_first(out, &file, height, width, origin) : read_still(out, &file, origin);
    take_notes(out, demuxer);
    WebPDemuxDelete(demuxer);
    return status;
}

/* ---- Animations ---- */

/* Browsers show a frame of at most 10 ms for 100 ms. */
enum { SHORTEST_MS = 10, USUAL_MS = 100 };

struct animation {
    const char *origin;
    const struct clip_request *request;
    WebPAnimDecoder *decoder;
    struct picture pattern;              /* profile and orientation, for every frame */
    i64 frames, height, width, capacity; /* capacity: allocated output frames */
    i64 *starts_ms;                      /* [frames + 1] begin of each frame; the last is the end */
};

static int open_clip(struct animation *a, const void *bytes, i64 count)
{
    WebPData file = {bytes, (size_t)count};
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (file_check_whole(kind, bytes, count, a->origin) < 0)
        return -1;
    WebPDemuxer *demuxer = WebPDemux(&file);
    if (!demuxer)
        return refuse(a->origin);
    a->frames = WebPDemuxGetI(demuxer, WEBP_FF_FRAME_COUNT);
    a->height = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT);
    a->width = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
    a->starts_ms = memory_alloc((a->frames + 1) * (i64)sizeof(i64));
    WebPIterator at;
    for (int more = WebPDemuxGetFrame(demuxer, 1, &at); more; more = WebPDemuxNextFrame(&at))
        a->starts_ms[at.frame_num] =
            a->starts_ms[at.frame_num - 1] + (at.duration <= SHORTEST_MS ? USUAL_MS : at.duration);
    WebPDemuxReleaseIterator(&at);
    take_notes(&a->pattern, demuxer);
    WebPDemuxDelete(demuxer);
    return a->frames > 0 ? 0 : error_set("%s: a WebP animation without frames", a->origin);
}

static void close_clip(struct animation *a)
{
    WebPAnimDecoderDelete(a->decoder);
    picture_release(&a->pattern);
    memory_free(a->starts_ms);
}

/* Number of wanted times that frame f covers: those up to halfway to the next frame. */
static i64 times_taken(const struct animation *a, i64 f, i64 before)
{
    double rate_hz = a->request->rate_hz;
    if (rate_hz == 0)
        return (double)a->starts_ms[f] >= a->request->from_s * 1000;
    bool last = f + 1 == a->frames;
    double until_ms = last ? (double)a->starts_ms[f + 1] - 1e-3 : (double)(a->starts_ms[f] + a->starts_ms[f + 1]) / 2;
    i64 taken = 0;
    while (a->request->from_s * 1000 + (double)(before + taken) * 1000 / rate_hz < until_ms)
        taken++;
    return taken;
}

/* Makes room for `more` frames shaped like `frame`, and sets the clip's size. */
static int reserve(struct clip *out, struct animation *a, const struct clip *frame, i64 more)
{
    i64 frame_bytes = frame->height * frame->width * 3, wanted = out->frames + more;
    if (wanted > CLIP_BYTES_MAX / frame_bytes)
        return error_set("%s: longer than %lld frames of %lldx%lld, the most that are held at once; ask for fewer or "
                         "smaller frames",
                         a->origin, (long long)out->frames, (long long)frame->height, (long long)frame->width);
    if (wanted > a->capacity) {
        wanted = max_i64(wanted, 2 * a->capacity);
        out->pixels = memory_resize(out->pixels, a->capacity * frame_bytes, wanted * frame_bytes);
        a->capacity = wanted;
    }
    out->height = frame->height;
    out->width = frame->width;
    out->inner_height = frame->inner_height;
    out->inner_width = frame->inner_width;
    out->cut = frame->cut;
    return 0;
}

/* Converts the canvas to one frame of the wanted size and appends it `times` times. */
static int keep_canvas(struct clip *out, struct animation *a, const u8 *canvas, i64 times)
{
    struct picture picture = {INKS_RGBA, a->height, a->width, .orientation = a->pattern.orientation};
    struct image_request as_it_is = {a->request->rules};
    struct clip frame, fitted;
    picture.pixels = memory_alloc(a->height * a->width * 4);
    memcpy(picture.pixels, canvas, (size_t)(a->height * a->width * 4));
    buffer_append(&picture.profile, a->pattern.profile.data, a->pattern.profile.length);
    picture_finish(&frame, &picture, &as_it_is);
    picture_release(&picture);
    if (a->request->height) {
        clip_fill(&fitted, &frame, a->request->height, a->request->width, a->request->crop);
        clip_release(&frame);
        frame = fitted;
    }
    int status = reserve(out, a, &frame, times);
    i64 frame_bytes = frame.height * frame.width * 3;
    for (; status == 0 && times > 0; times--, out->frames++)
        memcpy(out->pixels + out->frames * frame_bytes, frame.pixels, (size_t)frame_bytes);
    clip_release(&frame);
    return status;
}

static int read_frames(struct clip *out, struct animation *a)
{
    i64 most = a->request->max_frames;
    for (i64 f = 0; f < a->frames && (most == 0 || out->frames < most); f++) {
        u8 *canvas;
        int time_ms;
        if (!WebPAnimDecoderGetNext(a->decoder, &canvas, &time_ms))
            return refuse(a->origin);
        i64 times = times_taken(a, f, out->frames);
        if (most)
            times = min_i64(times, most - out->frames);
        if (times && keep_canvas(out, a, canvas, times) < 0)
            return -1;
    }
    return out->frames ? 0 : error_set("%s: it ends before %g s", a->origin, a->request->from_s);
}

int webp_clip_read(struct clip *out, const void *bytes, i64 count, const char *origin,
                   const struct clip_request *request)
{
    struct clip_request asked = *request;
    struct animation a = {.origin = origin, .request = &asked};
    asked.rules = asked.rules ? asked.rules : &picture_rules_usual;
    *out = (struct clip){0};
    int status = open_clip(&a, bytes, count);
    if (status == 0)
        status = picture_check_size(a.height, a.width, origin, &(struct image_request){asked.rules});
    if (status == 0) {
        out->rate_hz = asked.rate_hz > 0 ? asked.rate_hz : (double)a.frames * 1000 / (double)a.starts_ms[a.frames];
        a.decoder = open_animation(&(WebPData){bytes, (size_t)count});
        status = a.decoder ? read_frames(out, &a) : refuse(origin);
        out->seconds = (double)out->frames / out->rate_hz;
    }
    close_clip(&a);
    if (status < 0)
        clip_release(out);
    return status;
}

int webp_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin)
{
    struct animation a = {.origin = origin};
    int status = open_clip(&a, bytes, count);
    bool lies = orientation_of_exif(a.pattern.orientation).transposed;
    *height = (double)(lies ? a.width : a.height);
    *width = (double)(lies ? a.height : a.width);
    close_clip(&a);
    return status;
}

/* ---- Writing ---- */

static int take_bytes(const u8 *data, size_t size, const WebPPicture *picture)
{
    buffer_append(picture->custom_ptr, data, (i64)size);
    return 1;
}

i64 image_encode_webp(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality)
{
    enum { SIZE_AT = 16, SLOWEST = 6 }; /* behind "RIFF", its size, "WEBP" and "VP8 " */
    WebPConfig config;
    WebPPicture picture;
    require(WebPConfigInit(&config) && WebPPictureInit(&picture),
            "libwebp is not the one that this program was built with");
    config.quality = (float)quality;
    config.method = SLOWEST;
    picture.width = (int)width;
    picture.height = (int)height;
    picture.writer = take_bytes;
    picture.custom_ptr = out;
    i64 begin = out->length;
    bool done = WebPPictureImportRGB(&picture, pixels, (int)(width * 3)) && WebPEncode(&config, &picture);
    int problem = (int)picture.error_code;
    WebPPictureFree(&picture);
    if (!done)
        return error_set("a WebP picture of %lldx%lld: libwebp cannot write it (error %d of webp/encode.h)",
                         (long long)height, (long long)width, problem);
    const u8 *size = (const u8 *)out->data + begin + SIZE_AT;
    return size[0] | (i64)size[1] << 8 | (i64)size[2] << 16 | (i64)size[3] << 24;
}
