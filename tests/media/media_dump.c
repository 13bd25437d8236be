/* media_dump FOLDER FILE...: what Weft reads in each file, for scripts/media-table. Writes FOLDER/NAME.rgb, .clip,
 * .timed (2 frames a second) or .wave: a line of sizes, then all bytes; or FOLDER/NAME.refused, the message. */
#include "data/media/media.h"
#include <stdio.h>
#include <string.h>

static void write_out(const char *folder, const char *name, const char *ending, const char *head, const void *bytes,
                      i64 count)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, ending);
    FILE *file = fopen(path, "wb");
    require(file, "%s cannot be written", path);
    fputs(head, file);
    fwrite(bytes, 1, (size_t)count, file);
    require(fclose(file) == 0, "%s cannot be written", path);
}

static void dump_clip(const char *folder, const char *name, const char *ending, const struct clip *clip)
{
    char head[128];
    snprintf(head, sizeof head, "%lld %lld %lld %.9g %.9g\n", (long long)clip->frames, (long long)clip->height,
             (long long)clip->width, clip->rate_hz, clip->seconds);
    write_out(folder, name, ending, head, clip->pixels, clip->frames * clip->height * clip->width * 3);
}

static bool dump_frames(const char *folder, const char *name, const struct file_view *file, const char *ending,
                        double rate_hz)
{
    struct clip clip;
    if (clip_read(&clip, file->data, file->bytes, name, &(struct clip_request){.rate_hz = rate_hz}) < 0)
        return false;
    dump_clip(folder, name, ending, &clip);
    clip_release(&clip);
    return true;
}

/* A file may be a picture and a clip, as GIF is. */
static int dump(const char *folder, const char *name, const struct file_view *file)
{
    struct clip clip;
    struct sound sound;
    enum media_kind kind = media_kind(file->data, file->bytes, name);
    if (kind == MEDIA_UNKNOWN)
        return -1;
    bool moves = dump_frames(folder, name, file, "clip", 0);
    if (kind == MEDIA_VIDEO && !moves)
        write_out(folder, name, "refused", error_text(), "", 0);
    if (moves)
        dump_frames(folder, name, file, "timed", 2);
    if (kind != MEDIA_SOUND && image_read(&clip, file->data, file->bytes, name) == 0) {
        dump_clip(folder, name, "rgb", &clip);
        clip_release(&clip);
        return 0;
    }
    bool stands = kind == MEDIA_PNG || kind == MEDIA_STILL;
    if (!stands && sound_read(&sound, file->data, file->bytes, name, 0) == 0) {
        char head[64];
        snprintf(head, sizeof head, "%lld %lld\n", (long long)sound.samples, (long long)sound.rate_hz);
        write_out(folder, name, "wave", head, sound.values, sound.samples * 4);
        sound_release(&sound);
        return 0;
    }
    return moves || kind == MEDIA_VIDEO ? 0 : -1;
}

int main(int count, char **arguments)
{
    require(count > 2, "media_dump FOLDER FILE...");
    for (int i = 2; i < count; i++) {
        struct file_view file;
        const char *slash = strrchr(arguments[i], '/'), *name = slash ? slash + 1 : arguments[i];
        if (file_map(&file, arguments[i]) < 0 || dump(arguments[1], name, &file) < 0)
            write_out(arguments[1], name, "refused", error_text(), "", 0);
        file_unmap(&file);
    }
    return 0;
}
