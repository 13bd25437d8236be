/* Films: stores the soundtrack of a clip as audio parts behind it. */
#include "data/prepare/prepare_internal.h"
#include "data/media/silence.h"

/* Adds a sound to the part. One longer than audio_seconds is cut into its non-silent pieces if the
 * settings cut sounds, else it makes the item too long. Takes ownership of the sound. */
static int add_sound(const struct prepare *p, struct item *item, struct encoded_part *part, struct sound *sound)
{
    const struct prepare_settings *s = p->settings;
    struct silence_cutter cutter;
    struct sound piece;
    double from_s;
    int more = 0;
    if (sound->samples <= (i64)(s->audio_seconds * (double)prepare_rate_hz(p))) {
        encoded_part_add_sound(part, sound);
        return 0;
    }
    item->too_long |= !s->cut_sounds;
    if (!item->too_long) {
        silence_cutter_open_sound(&cutter, sound, s->audio_seconds);
        while ((more = silence_cutter_next(&cutter, &piece, &from_s)) > 0)
            encoded_part_add_sound(part, &piece);
        silence_cutter_close(&cutter);
    }
    sound_release(sound);
    return more;
}

int film_sound_decode(const struct prepare *p, struct item *item, struct encoded_part *part, const void *bytes,
                      i64 count, const char *origin)
{
    bool demand = p->settings->film_sound == FILM_SOUND_DEMAND;
    struct sound sound;
    if (p->settings->film_sound == FILM_SOUND_NONE)
        return 0;
    int status = film_sound_read(&sound, bytes, count, origin, prepare_rate_hz(p), item->from_s, part->clip.seconds);
    if (status < 0 && !demand && !item->sound_problem)
        item->sound_problem = string_copy(error_text());
    if (status < 0)
        return demand ? -1 : 0;
    if (sound.samples && p->curation)
        curation_sound(p->curation, &item->curate, sound.values, sound.samples, prepare_rate_hz(p));
    if (sound.samples && add_sound(p, item, part, &sound) < 0)
        return -1;
    item->silent |= !part->sound_count && !item->too_long;
    item->left_out |= item->silent && demand;
    return 0;
}

void film_sound_count(struct prepare *p, const struct item *item)
{
    p->counts.silent_clips += item->silent;
    p->counts.bad_sounds += item->sound_problem != NULL;
    if (item->sound_problem)
        log_warn("%s: the sound of a clip is left out: %s", item->sample.name, item->sound_problem);
}
