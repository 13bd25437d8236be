/* The program: parses options, checks the required packages, makes one split after the other. */
#include "corpus/corpus.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_MOST = 128, SIZE_MOST_PHOTOS = 1024 };

static const char usage[] =
    "usage: weft-corpus -o DIR [options]\n"
    "       weft-corpus judge\n"
    "Makes a corpus of text, pictures, clips and speech from installed packages.\n"
    "  -o DIR            where to; made if needed, must not hold a corpus yet\n"
    "  --seed N          every draw depends on it (default 1)\n"
    "  --glyphs N        pictures with their names, forms and colours (default 1500)\n"
    "  --clips N         short videos with a sentence each (default 1440)\n"
    "  --spoken N        spoken words and sentences (default 8000)\n"
    "  --text-bytes N    text in several languages (default 6000000)\n"
    "  --wordnet         nothing but text: each entry of WordNet once\n"
    "  --talk            nothing but conversations, and pictures that they show\n"
    "  --sums            nothing but a task: sums of 4 to 24 digits, answered in two ways\n"
    "  --think           with --sums: running sums stand in <think>, as hints of rl do\n"
    "  --photos FOLDER   nothing but squares cut from the pictures of a folder, in their size\n"
    "                    and half of it; one picture of four is held out\n"
    "  --size N          height and width of pictures, even, 16 to 128 (default 64), with --photos\n"
    "                    to 1024\n"
    "judge: scores pictures and clips by their captions; a program of rl's verifier: program.\n"
    "JSON lines in, e.g. {\"image\": FILE, \"ground_truth\": CAPTION}, and scores out.\n";

static const struct {
    const char *path, *package;
} needed[] = {
    {"/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf", "fonts-noto-color-emoji"},
    {"/usr/share/unicode/emoji/emoji-test.txt", "unicode-data"},
    {"/usr/share/wordnet/data.noun", "wordnet-base"},
    {"/usr/share/games/fortunes/computers", "fortunes"},
    {"/usr/share/games/fortunes/literature", "fortunes-min"},
    {"/usr/share/games/fortunes/de", "fortunes-de"},
    {"/usr/share/games/fortunes/es", "fortunes-es"},
    {"/usr/share/games/fortunes/definizioni", "fortunes-it"},
    {"/usr/share/games/fortunes/chinese", "fortunes-zh"},
};

/* WordNet alone needs one package, sums and photographs none. */
static int check_packages(const struct corpus *corpus)
{
    struct buffer missing = {0};
    for (i64 i = 0; i < COUNT_OF(needed) && !corpus->sums && !corpus->photos; i++)
        if (!file_exists(needed[i].path) && !file_is_directory(needed[i].path) &&
            (!corpus->wordnet || strcmp(needed[i].package, "wordnet-base") == 0))
            buffer_printf(&missing, " %s", needed[i].package);
    int status = missing.length
                     ? error_set("packages the corpus is made from are missing; run: apt-get install%s", missing.data)
                     : 0;
    buffer_release(&missing);
    return status;
}

static int parse_count(i64 *out, const char *option, const char *text, i64 least, i64 most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text == 0 || *end || value < least || value > most)
        return error_usage("%s: expected a number from %lld to %lld, found \"%s\"", option, (long long)least,
                           (long long)most, text);
    *out = value;
    return 0;
}

static int check_options(const struct corpus *corpus, bool more_arguments)
{
    if (corpus->size % 2)
        return error_usage("--size: expected an even number (H.264 wants one), found %lld", (long long)corpus->size);
    if (!corpus->photos && corpus->size > SIZE_MOST)
        return error_usage("--size: expected at most %d without --photos, found %lld", SIZE_MOST,
                           (long long)corpus->size);
    if (corpus->wordnet + corpus->talk + corpus->sums + (corpus->photos != NULL) > 1)
        return error_usage("--wordnet, --talk, --sums and --photos are exclusive");
    if (corpus->think && !corpus->sums)
        return error_usage("--think says how answers to sums look: expected --sums too");
    if (!corpus->directory || more_arguments)
        return error_usage("expected -o DIR and options alone; see weft-corpus --help");
    return 0;
}

/* Returns 1 if the help text was printed. */
static int parse_options(struct corpus *corpus, int count, char **arguments)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},    {"seed", required_argument, NULL, 's'},
        {"glyphs", required_argument, NULL, 'g'}, {"clips", required_argument, NULL, 'c'},
        {"spoken", required_argument, NULL, 'p'}, {"text-bytes", required_argument, NULL, 't'},
        {"wordnet", no_argument, NULL, 'w'},      {"size", required_argument, NULL, 'z'},
        {"photos", required_argument, NULL, 'f'}, {"talk", no_argument, NULL, 'k'},
        {"sums", no_argument, NULL, 'u'},         {"think", no_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},         {0}};
    i64 seed = 1;
    int option, status = 0;
    while (status == 0 && (option = getopt_long(count, arguments, "o:h", options, NULL)) != -1) {
        if (option == 'o')
            corpus->directory = optarg;
        else if (option == 's')
            status = parse_count(&seed, "--seed", optarg, 0, INT64_MAX);
        else if (option == 'g')
            status = parse_count(&corpus->glyphs, "--glyphs", optarg, 20, 10000);
        else if (option == 'c')
            status = parse_count(&corpus->clips, "--clips", optarg, 3, 100000);
        else if (option == 'p')
            status = parse_count(&corpus->spoken, "--spoken", optarg, 3, 100000);
        else if (option == 't')
            status = parse_count(&corpus->text_bytes, "--text-bytes", optarg, 10000, 1000000000);
        else if (option == 'z')
            status = parse_count(&corpus->size, "--size", optarg, 16, SIZE_MOST_PHOTOS);
        else if (option == 'f')
            corpus->photos = optarg;
        else if (option == 'w')
            corpus->wordnet = true;
        else if (option == 'k')
            corpus->talk = true;
        else if (option == 'u')
            corpus->sums = true;
        else if (option == 'i')
            corpus->think = true;
        else if (option == 'h')
            return fputs(usage, stdout) < 0 ? -1 : 1;
        else
            status = error_usage("see weft-corpus --help");
    }
    corpus->seed = (u64)seed;
    corpus->key = (struct rng_key){corpus->seed, RNG_CORPUS};
    return status ? status : check_options(corpus, optind < count);
}

static int make_folders(const struct corpus *corpus)
{
    static const char *const kinds[] = {"image", "video", "audio"};
    bool text_alone = corpus->wordnet || corpus->sums;
    int status = 0;
    enum split splits = corpus->talk ? SPLIT_VALIDATION : corpus->photos ? SPLIT_TEST : SPLITS;
    for (enum split split = 0; split < splits && status == 0; split++) {
        char *folder = path_join(corpus->directory, split_names[split]);
        if (file_is_directory(folder))
            status = error_set("%s is there already; remove it or choose another folder", folder);
        if (text_alone && status == 0)
            status = directory_make(folder);
        for (i64 i = 0; i < (corpus->talk || corpus->photos ? 1 : COUNT_OF(kinds)) && status == 0 && !text_alone; i++) {
            char *path = path_join(folder, kinds[i]);
            status = directory_make(path);
            memory_free(path);
        }
        memory_free(folder);
    }
    return status;
}

static int make_glyph_parts(struct corpus *corpus)
{
    struct font_file file;
    struct glyph_list list = {0};
    if (font_file_open(&file) < 0)
        return -1;
    int status = glyph_list_load(&list);
    if (status == 0)
        font_find(&list, &file);
    if (status == 0)
        status = glyphs_choose(&list, corpus->glyphs, corpus->key);
    if (status == 0)
        glyphs_split(&list, corpus->key);
    if (status == 0)
        status = make_pictures(corpus, &list, &file);
    if (status == 0)
        status = corpus->talk ? make_talk(corpus, &list) : make_clips(corpus, &list, &file);
    glyph_list_release(&list);
    font_file_close(&file);
    return status;
}

static int make_parts(struct corpus *corpus)
{
    if (corpus->talk)
        return make_glyph_parts(corpus);
    if (corpus->sums)
        return make_sums(corpus);
    if (corpus->photos)
        return make_photos(corpus);
    if (make_text(corpus) < 0)
        return -1;
    if (corpus->wordnet)
        return 0;
    return make_glyph_parts(corpus) < 0 || make_speech(corpus) < 0 || make_sorting(corpus) < 0 ||
                   corpus_save_captions(corpus) < 0
               ? -1
               : 0;
}

static int make_corpus(struct corpus *corpus)
{
    double begin_s = clock_s();
    if (check_packages(corpus) < 0 || make_folders(corpus) < 0 || make_parts(corpus) < 0)
        return -1;
    log_info("corpus in %s: %.1f s, at most %lld MB of memory", corpus->directory, clock_s() - begin_s,
             (long long)(memory_peak_bytes() >> 20));
    return 0;
}

static int check_judge(int count)
{
    return count > 2 ? error_usage("judge: expected no arguments, and JSON lines on stdin") : 0;
}

int main(int count, char **arguments)
{
    struct corpus corpus = {.glyphs = 1500, .clips = 1440, .spoken = 8000, .text_bytes = 6000000, .size = 64};
    bool judges = count > 1 && strcmp(arguments[1], "judge") == 0;
    int status = stack_check() ? -1 : judges ? check_judge(count) : parse_options(&corpus, count, arguments);
    if (status > 0)
        return 0;
    if (status == 0 && judges) {
        status = judge(stdin, stdout);
    } else if (status == 0) {
        signals_catch();
        workers_start(0);
        status = make_corpus(&corpus);
        workers_stop();
    }
    corpus_release(&corpus);
    if (status < 0 && interrupted() && !judges) {
        fprintf(stderr, "weft-corpus: interrupted; %s is incomplete\n", corpus.directory);
        return 130;
    }
    if (status < 0)
        fprintf(stderr, "weft-corpus: %s\n", error_text());
    return status < 0 ? error_status() : 0;
}
