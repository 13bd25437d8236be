/* Sounds survive a round trip through files; invalid ones are refused with a message that gives the
 * reason. The WAV files are assembled byte by byte. */
#include "data/media/silence.h"
#include "tests/cases.h"
#include "tests/media_fixture.h"

static void make_tone(struct sound *sound, i64 samples, i64 rate_hz, double tone_hz)
{
    sound_init(sound, samples, rate_hz);
    for (i64 i = 0; i < samples; i++)
        sound->values[i] = (float)(0.5 * sin(2 * M_PI * tone_hz * (double)i / (double)rate_hz));
}

TEST(wav_round_trip_is_exact_to_16_bits)
{
    struct sound in, out;
    struct buffer wav = {0};
    make_tone(&in, 4000, 16000, 440);
    in.values[10] = 2;
    in.values[11] = -2;
    in.values[12] = NAN;
    sound_encode_wav(&wav, &in);
    assert_int_equal(media_kind(wav.data, wav.length, "a.wav"), MEDIA_SOUND);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_int_equal(out.samples, 4000);
    assert_int_equal(out.rate_hz, 16000);
    assert_true(out.values[10] > 0.999 && out.values[11] < -0.999 && out.values[12] == 0);
    for (i64 i = 13; i < 4000; i++)
        assert_true(fabsf(out.values[i] - in.values[i]) < 1.0f / 30000);
    sound_release(&in);
    sound_release(&out);
    buffer_release(&wav);
}

TEST(resampling_keeps_tone_and_length)
{
    struct sound in, out, wanted;
    struct buffer wav = {0};
    make_tone(&in, 22050, 22050, 440);
    make_tone(&wanted, 16000, 16000, 440);
    sound_encode_wav(&wav, &in);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_true(llabs(out.samples - 16000) <= 1);
    for (i64 i = 120; i < 15880; i++) /* the ends see silence beside them; a step of 16 bits is 3e-5 */
        assert_true(fabsf(out.values[i] - wanted.values[i]) < 1e-4f);
    sound_release(&in);
    sound_release(&out);
    sound_release(&wanted);
    buffer_release(&wav);
}

/* A tone in 32-bit float samples. */
static void make_tone_file(struct buffer *wav, i64 samples, i64 rate_hz, double tone_hz)
{
    struct sound tone;
    make_tone(&tone, samples, rate_hz, tone_hz);
    make_wav(wav, 3, 1, 32, (u32)rate_hz, tone.values, samples * (i64)sizeof(float));
    sound_release(&tone);
}

/* Tones of a second and a half at 16 kHz: their level against that in the file, away from the ends.
 * Of those above 8 kHz it is what folds back. */
TEST(tones_below_half_the_rate_stay_and_those_above_go)
{
    EACH_CASE (c, "resampled_tones.jsonl") {
        struct buffer wav = {0};
        struct sound out;
        i64 from_hz = (i64)case_number(c, "from_hz");
        make_tone_file(&wav, from_hz * 3 / 2, from_hz, case_number(c, "tone_hz"));
        assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
        assert_int_equal(out.samples, 24000);
        double power = 1e-30;
        for (i64 i = 4000; i < 20000; i++)
            power += (double)out.values[i] * out.values[i] / 16000;
        double level_db = 10 * log10(power / 0.125);
        if (level_db < case_number(c, "least_db") || level_db > case_number(c, "most_db"))
            case_wrong(c, "%.2f dB", level_db);
        sound_release(&out);
        buffer_release(&wav);
    }
}

TEST(resampled_sounds_keep_their_length)
{
    static const i64 rates_hz[] = {1000, 8000, 11025, 22050, 44099, 44100, 48000, 768000};
    for (i64 r = 0; r < COUNT_OF(rates_hz); r++)
        for (i64 samples = 1; samples < 200000; samples = 3 * samples + 1) {
            struct buffer wav = {0};
            struct sound out;
            double wanted = (double)samples * 16000 / (double)rates_hz[r];
            if (wanted < 1)
                continue;
            make_tone_file(&wav, samples, rates_hz[r], 0.1 * (double)rates_hz[r]);
            assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
            assert_true(fabs((double)out.samples - wanted) < 1);
            sound_release(&out);
            buffer_release(&wav);
        }
}

static void check_wav(int format, int bits, const void *data, i64 bytes, float wanted)
{
    struct buffer wav = {0};
    struct sound sound;
    make_wav(&wav, format, 2, bits, 8000, data, bytes);
    if (sound_read(&sound, wav.data, wav.length, "stereo.wav", 0) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 1);
    assert_int_equal(sound.rate_hz, 8000);
    assert_true(fabsf(sound.values[0] - wanted) < 1e-4f);
    sound_release(&sound);
    buffer_release(&wav);
}

TEST(channels_are_averaged_in_every_format)
{
    const float floats[2] = {0.75f, -0.25f}, broken[2] = {NAN, 0.5f};
    check_wav(1, 8, "\xe0\x60", 2, 0.25f);
    check_wav(1, 16, "\0\x60\0\xe0", 4, 0.25f);
    check_wav(1, 24, "\0\0\x60\0\0\xe0", 6, 0.25f);
    check_wav(1, 32, "\0\0\0\x60\0\0\0\xe0", 8, 0.25f);
    check_wav(3, 32, floats, 8, 0.25f);
    check_wav(3, 32, broken, 8, 0);
}

static void refuse_sound(const void *bytes, i64 count, const char *wanted)
{
    struct sound sound;
    assert_int_equal(sound_read(&sound, bytes, count, "bad.wav", 16000), -1);
    assert_null(sound.values);
    assert_says("bad.wav");
    assert_says(wanted);
}

TEST(bad_sounds_are_refused)
{
    struct buffer wav = {0}, nothing = {0}, png = {0};
    struct sound tone;
    make_tone(&tone, 1000, 8000, 100);
    sound_encode_wav(&wav, &tone);
    make_wav(&nothing, 1, 1, 16, 8000, "", 0);
    make_small_png(&png);
    refuse_sound("", 0, "an empty file");
    refuse_sound("RIFF", 4, "found text");
    refuse_sound(png.data, png.length, "found a PNG picture");
    refuse_sound(nothing.data, nothing.length, "no samples");
    for (i64 cut = 45; cut < wav.length; cut += 111)
        refuse_sound(wav.data, cut, "cut short");
    for (i64 cut = 12; cut < 45; cut++)
        refuse_sound(wav.data, cut, "");
    sound_release(&tone);
    buffer_release(&wav);
    buffer_release(&nothing);
    buffer_release(&png);
}

/* An ID3v1 tag: 128 bytes that begin with TAG. */
TEST(what_stands_behind_a_wav_is_not_read)
{
    struct buffer wav = {0};
    struct sound sound;
    char tag[128] = "TAG a title";
    memset(tag + 20, 0x7e, 100);
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    buffer_append(&wav, tag, sizeof tag);
    if (sound_read(&sound, wav.data, wav.length, "tagged.wav", 8000) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    memset(wav.data + 4, 0, 4); /* with an open length these bytes would be a chunk of the file */
    refuse_sound(wav.data, wav.length, "cut short");
    buffer_release(&wav);
}

/* A long AVI file continues in further RIFF chunks, which may be truncated as well. */
TEST(further_riff_chunks_are_checked)
{
    struct buffer wav = {0};
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    buffer_append(&wav, "RIFF\x08\0\0\0AVIXmore", 16);
    struct sound sound;
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "two.wav", 8000), 0);
    sound_release(&sound);
    refuse_sound(wav.data, wav.length - 1, "cut short");
    buffer_release(&wav);
}

/* Readers take the first of two chunks of samples alone. */
TEST(samples_in_two_chunks_are_not_halved)
{
    struct buffer wav = {0};
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    wav.data[4] = (char)(wav.data[4] + 8 + 4);
    buffer_append(&wav, "data\x04\0\0\0ffgg", 12);
    refuse_sound(wav.data, wav.length, "samples are in two chunks, the second at byte 54");
    buffer_release(&wav);
}

/* Titles behind the samples are no sound. */
TEST(a_cut_chunk_behind_the_samples_is_not_missed)
{
    struct buffer wav = {0};
    struct sound sound;
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    wav.data[4] = (char)(wav.data[4] + 8 + 100);
    buffer_append(&wav, "LIST\x64\0\0\0INFO", 12);
    if (sound_read(&sound, wav.data, wav.length, "titled.wav", 0) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    refuse_sound(wav.data, wav.length - 13, "cut short");
    buffer_release(&wav);
}

/* Programs that write to a pipe cannot seek back to fill in the length. */
TEST(a_wav_of_open_length_is_read_to_its_end)
{
    struct buffer wav = {0};
    struct sound sound;
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    memset(wav.data + 40, 0xff, 4);
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "pipe.wav", 8000), 0);
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    buffer_release(&wav);
}

/* Decoding stops as soon as a sound is known to exceed the limit. */
TEST(a_limit_ends_the_reading_behind_it)
{
    enum { SAMPLES = 200000 };
    struct sound in, out;
    struct buffer wav = {0};
    make_tone(&in, SAMPLES, 16000, 440);
    sound_encode_wav(&wav, &in);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 16000, 20000), 0);
    assert_in_range(out.samples, 20001, 30000);
    sound_release(&out);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 8000, 20000), 0);
    assert_in_range(out.samples, 20001, 30000);
    sound_release(&out);
    assert_int_equal(sound_read_most(&out, wav.data, wav.length, "long.wav", 16000, SAMPLES), 0);
    assert_int_equal(out.samples, SAMPLES);
    sound_release(&out);
    sound_release(&in);
    buffer_release(&wav);
}

/* ---- Long sounds ---- */

enum { TALK_HZ = 8000, TALK_SECONDS = 600, WORD = 3200, PAUSE = 800 };

/* Words of 0.4 s, each followed by a pause of 0.1 s. */
static void make_talk(struct buffer *wav)
{
    i64 samples = (i64)TALK_HZ * TALK_SECONDS;
    int16_t *values = memory_alloc(samples * 2);
    for (i64 i = 0; i < samples; i++)
        values[i] = i % (WORD + PAUSE) < WORD ? (int16_t)(8000 * sin(0.2 * (double)i)) : 0;
    make_wav(wav, 1, 1, 16, TALK_HZ, values, samples * 2);
    memory_free(values);
}

TEST(long_sounds_are_cut_in_their_pauses)
{
    struct buffer wav = {0};
    struct sound whole, piece;
    struct silence_cutter cutter;
    double from_s;
    i64 at = 0, pieces = 0;
    make_talk(&wav);
    assert_int_equal(sound_read(&whole, wav.data, wav.length, "talk.wav", 0), 0);
    assert_int_equal(silence_cutter_open(&cutter, wav.data, wav.length, "talk.wav", TALK_HZ, 7.3), 0);
    for (; silence_cutter_next(&cutter, &piece, &from_s) == 1; pieces++) {
        assert_true(piece.samples <= cutter.longest);
        assert_int_equal(llround(from_s * TALK_HZ), at);
        assert_memory_equal(piece.values, whole.values + at, piece.samples * (i64)sizeof(float));
        assert_true(cutter.count <= cutter.longest + 1); /* all that is held, of 4.8 million samples */
        at += piece.samples;
        if (at < whole.samples && at % (WORD + PAUSE) < WORD && at % (WORD + PAUSE) > 0)
            fail_msg("cut within a word, at sample %lld", (long long)at);
        sound_release(&piece);
    }
    assert_int_equal(at, whole.samples);
    assert_in_range(pieces, TALK_SECONDS / 7.3, TALK_SECONDS / 3.65 + 1);
    silence_cutter_close(&cutter);
    sound_release(&whole);
    buffer_release(&wav);
}

TEST(what_is_silent_is_left_out)
{
    struct buffer wav = {0};
    struct sound piece;
    struct silence_cutter cutter;
    double from_s;
    int16_t *values = memory_alloc(4 * TALK_HZ * 2); /* 4 s, the last one with a tone */
    for (i64 i = 3 * TALK_HZ; i < 4 * TALK_HZ; i++)
        values[i] = (int16_t)(8000 * sin(0.2 * (double)i));
    make_wav(&wav, 1, 1, 16, TALK_HZ, values, 4 * TALK_HZ * 2);
    assert_int_equal(silence_cutter_open(&cutter, wav.data, wav.length, "night.wav", TALK_HZ, 1), 0);
    assert_int_equal(silence_cutter_next(&cutter, &piece, &from_s), 1);
    assert_true(from_s >= 2.4 && from_s <= 3);
    sound_release(&piece);
    while (silence_cutter_next(&cutter, &piece, &from_s) == 1)
        sound_release(&piece);
    silence_cutter_close(&cutter);
    assert_int_equal(silence_cutter_open(&cutter, wav.data, 20, "cut.wav", TALK_HZ, 1), -1);
    assert_says("cut.wav");
    silence_cutter_close(&cutter);
    memory_free(values);
    buffer_release(&wav);
}

/* A stream yields the samples of reading at once, in every format, resampled to 16 and 24 kHz. */
TEST(streams_give_the_same_samples)
{
    static const char *const names[] = {"two.mp3", "two.aac", "two.m4a", "two.flac", "two.ogg", "two.opus", "two.webm"};
    for (i64 i = 0; i < COUNT_OF(names) * 2; i++) {
        const char *name = names[i / 2];
        char *path = string_format(SOURCE_TREE "/tests/media/%s", name);
        struct file_view file;
        struct sound whole;
        float some[333];
        i64 rate_hz = i % 2 ? 16000 : 24000, at = 0, more;
        assert_int_equal(file_map(&file, path), 0);
        assert_int_equal(sound_read(&whole, file.data, file.bytes, name, rate_hz), 0);
        struct sound_stream *stream = sound_stream_open(file.data, file.bytes, name, rate_hz);
        for (; (more = sound_stream_read(stream, some, COUNT_OF(some))) > 0; at += more) {
            assert_true(at + more <= whole.samples);
            assert_memory_equal(some, whole.values + at, more * (i64)sizeof(float));
        }
        assert_int_equal(more, 0);
        assert_int_equal(at, whole.samples);
        sound_stream_close(stream);
        sound_release(&whole);
        file_unmap(&file);
        memory_free(path);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
