/* The inventory of a finished stage: damaged, changed and deleted files are named, by whatever reads
 * them. The digests are those of xxhash 4.1 for Python, xxh3_64_hexdigest. */
#include "core/inventory.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "tests/scratch.h"
#include "tests/files.h"

#define APPLE "a red apple\n"
#define APPLE_XXH3 "3bdb6a2e36dbd4fe"

static const float values[64] = {1, 2, 3};

static char *stage;

static void save_tensors(const char *name)
{
    const struct tensor_source tensor = {"a", DTYPE_F32, 1, {64}, values};
    char *path = path_join(stage, name);
    succeed(safetensors_save(path, &tensor, 1, NULL));
    memory_free(path);
}

/* A folder with files of each rule, and what is not listed. */
static void make_stage(const char *name)
{
    u8 bytes[1280];
    for (i64 i = 0; i < 1280; i++)
        bytes[i] = (u8)i;
    stage = path_join(directory, name);
    succeed(directory_remove(stage));
    put_in(stage, "apple.txt", APPLE, (i64)strlen(APPLE));
    put_in(stage, "empty", "", 0);
    put_in(stage, "done.json", "{}\n", 3);
    put_in(stage, "weft/vision/bytes", bytes, 1280);
    put_in(stage, "train/index", bytes, 100);
    put_in(stage, "train/00000.shard", bytes, 500);
    put_in(stage, "alone.shard", bytes, 500);
    put_in(stage, "checkpoints/step-000001/model", bytes, 50);
    put_in(stage, "events.out.tfevents.1", bytes, 50);
    put_in(stage, "weft/submodels.json", "{}", 2);
    save_tensors("model.safetensors");
    succeed(inventory_save(stage));
}

static void drop_stage(void)
{
    memory_free(stage);
}

static struct json *files_of(struct json **whole)
{
    char *path = path_join(stage, INVENTORY_FILE);
    *whole = json_load(path);
    assert_non_null(*whole);
    memory_free(path);
    return json_get(*whole, "files");
}

static void expect(const struct json *files, const char *name, i64 bytes, const char *digest)
{
    const struct json *entry = json_get(files, name);
    assert_non_null(entry);
    assert_int_equal(json_integer(json_get(entry, "bytes"), -1), bytes);
    if (digest)
        assert_string_equal(json_string(json_get(entry, "xxh3"), ""), digest);
    else
        assert_null(json_get(entry, "xxh3"));
}

TEST(each_file_is_listed_with_its_size_and_hash)
{
    struct json *whole;
    make_stage("listed");
    const struct json *files = files_of(&whole);
    expect(files, "apple.txt", 12, APPLE_XXH3);
    expect(files, "empty", 0, "2d06800538d394c2");
    expect(files, "weft/vision/bytes", 1280, "4844b009e164352e");
    expect(files, "train/00000.shard", 500, NULL); /* the index beside it has its checksums */
    assert_non_null(json_get(json_get(files, "alone.shard"), "xxh3"));
    assert_non_null(json_get(json_get(files, "model.safetensors"), "header"));
    assert_int_equal(json_count(files), 8);
    json_free(whole);
    drop_stage();
}

/* Reads a file in the three ways there are; returns how many of them fail and name it. */
static int refusals(const char *name)
{
    struct file_view view;
    struct buffer text = {0};
    char *path = path_join(stage, name), *copy = path_of("copy");
    int refused = 0;
    inventory_forget();
    if (file_map(&view, path) < 0)
        refused += strstr(error_text(), name) != NULL;
    else
        file_unmap(&view);
    inventory_forget();
    refused += file_read(&text, path) < 0 && strstr(error_text(), "--accept");
    inventory_forget();
    refused += file_copy(copy, path) < 0 && strstr(error_text(), name);
    assert_true(refused == 0 || !file_exists(copy));
    remove(copy);
    buffer_release(&text);
    memory_free(path);
    return refused;
}

TEST(damaged_files_are_not_read)
{
    static const char *const names[] = {"apple.txt", "weft/vision/bytes", "train/index", "alone.shard"};
    make_stage("damaged");
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer whole = {0};
        char *path = path_join(stage, names[i]);
        assert_int_equal(refusals(names[i]), 0);
        succeed(file_read(&whole, path));
        whole.data[whole.length / 2] ^= 1; /* a flipped bit */
        put_in(stage, names[i], whole.data, whole.length);
        assert_int_equal(refusals(names[i]), 3);
        whole.data[whole.length / 2] ^= 1;
        put_in(stage, names[i], whole.data, whole.length / 2); /* cut */
        assert_int_equal(refusals(names[i]), 3);
        inventory_forget();
        assert_int_equal(inventory_check(stage), -1);
        put_in(stage, names[i], whole.data, whole.length);
        assert_int_equal(refusals(names[i]), 0);
        buffer_release(&whole);
        memory_free(path);
    }
    drop_stage();
}

/* A weight that changed does not fit the checksum of its file, and a file of another model, which has
 * a checksum that fits, not the inventory. */
TEST(weights_are_bound_by_their_header)
{
    static const float others[64] = {1, 2, 4};
    const struct tensor_source other = {"a", DTYPE_F32, 1, {64}, others};
    make_stage("weights");
    char *path = path_join(stage, "model.safetensors");
    assert_int_equal(safetensors_check(path), 1);
    succeed(safetensors_save(path, &other, 1, NULL));
    inventory_forget();
    assert_int_equal(safetensors_check(path), -1);
    assert_says("checksum differs");
    memory_free(path);
    drop_stage();
}

TEST(what_is_absent_is_named_by_who_opens_the_folder)
{
    make_stage("absent");
    char *gone = path_join(stage, "weft/vision/bytes"), *below = path_join(stage, "weft/vision");
    char *beside = path_join(stage, "train");
    succeed(inventory_check(stage));
    succeed(remove(gone));
    inventory_forget();
    assert_int_equal(inventory_check(stage), -1);
    assert_says("weft/vision/bytes: it is missing");
    assert_int_equal(inventory_check(below), -1);
    succeed(inventory_check(beside)); /* of which nothing is missing */
    memory_free(gone);
    memory_free(below);
    memory_free(beside);
    drop_stage();
}

TEST(a_damaged_inventory_is_named_and_a_deleted_one_says_nothing)
{
    struct buffer whole = {0};
    make_stage("inventory");
    char *path = path_join(stage, INVENTORY_FILE);
    succeed(file_read(&whole, path));
    for (i64 at = 0; at < whole.length; at += 29) {
        if (strchr(" \n", whole.data[at]))
            continue;
        whole.data[at] ^= 1;
        put_in(stage, INVENTORY_FILE, whole.data, whole.length);
        whole.data[at] ^= 1;
        inventory_forget();
        if (inventory_check(stage) < 0)
            assert_says(INVENTORY_FILE);
        else /* the name of the seal itself: the rest is right */
            assert_non_null(strstr(whole.data + at - 12, "weft.xxh3"));
    }
    put_in(stage, INVENTORY_FILE, whole.data, whole.length / 2);
    assert_int_equal(refusals("apple.txt"), 1); /* the other two messages name the inventory */
    succeed(remove(path));
    put_in(stage, "apple.txt", "green\n", 6);
    assert_int_equal(refusals("apple.txt"), 0); /* as in a folder of an older version */
    inventory_forget();
    succeed(inventory_check(stage));
    buffer_release(&whole);
    memory_free(path);
    drop_stage();
}

TEST(an_edit_by_intent_can_be_taken)
{
    make_stage("edited");
    put_in(stage, "apple.txt", "green\n", 6);
    assert_int_equal(refusals("apple.txt"), 3);
    succeed(inventory_save(stage));
    assert_int_equal(refusals("apple.txt"), 0);
    succeed(inventory_check_all(stage));
    drop_stage();
}

TEST(an_inventory_of_others_is_passed_over)
{
    struct buffer text = {0};
    stage = path_join(directory, "others");
    put_in(stage, "a/apple.txt", APPLE, (i64)strlen(APPLE));
    put_in(stage, INVENTORY_FILE, "[\"apples\", 3", 13);
    char *path = path_join(stage, "a/apple.txt");
    succeed(file_read(&text, path));
    succeed(inventory_check(stage));
    buffer_release(&text);
    memory_free(path);
    drop_stage();
}

/* A finished stage that is made again in the same process has another inventory. */
TEST(a_replaced_folder_is_read_anew)
{
    struct buffer text = {0};
    make_stage("replaced");
    char *path = path_join(stage, "apple.txt"), *first = stage;
    succeed(file_read(&text, path));
    make_stage("next");
    put_in(stage, "apple.txt", "green\n", 6);
    succeed(inventory_save(stage));
    succeed(directory_replace(stage, first));
    succeed(file_read(&text, path));
    assert_string_equal(text.data, "green\n");
    buffer_release(&text);
    memory_free(path);
    memory_free(first);
    drop_stage();
}

/* Nor is it forgotten that there was no folder. */
TEST(a_new_folder_is_read_anew)
{
    make_stage("begun");
    char *done = path_join(directory, "done");
    succeed(inventory_check(done));
    put_in(stage, "apple.txt", "green\n", 6);
    succeed(directory_replace(stage, done));
    assert_int_equal(inventory_check(done), -1);
    assert_says("apple.txt: 6 bytes, expected 12");
    memory_free(done);
    drop_stage();
}

TEST(a_seal_fits_one_content)
{
    char *path = path_of("sealed.json");
    struct json *j = json_object();
    struct buffer text = {0};
    json_set(j, "precision", json_of_string("f32"));
    json_set(j, "recipe", json_of_string("a.yaml"));
    succeed(json_save_sealed(path, j));
    succeed(file_read(&text, path));
    assert_non_null(strstr(text.data, "faed57b6fc9455dd"));
    json_free(j);
    j = json_load(path);
    assert_int_equal(json_count(j), 2);
    json_free(j);
    *strstr(text.data, "f32") = 'g';
    succeed(file_replace(path, text.data, text.length));
    assert_null(json_load(path));
    assert_says("sealed.json: its checksum differs");
    buffer_release(&text);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
