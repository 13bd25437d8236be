/* What `weft inspect` knows of each kind of file: a JSON object that says what is there, NULL and a message where
 * something is wrong. It is printed as it is, or for people by inspect_show: objects as lines, lists of objects as
 * tables. */
#ifndef WEFT_CLI_INSPECT_H
#define WEFT_CLI_INSPECT_H
#include "core/json.h"
#include "data/sources/sources.h"

/* verify: every byte is read and checked against what the format knows of it (checksums, missing tensors, numbers that
 * are not finite). */
struct json *inspect_model(const char *directory, bool verify);
/* a step's folder, or the folder of all steps: the newest whole one */
struct json *inspect_checkpoint(const char *directory);
struct json *inspect_codec(const char *directory, bool verify); /* a vision or audio tokenizer */
struct json *inspect_safetensors(const char *path, bool verify);
struct json *inspect_shards(const char *directory, bool verify);
struct json *inspect_shard_folders(const char *path, bool verify);
struct json *inspect_tokenizer(const char *path);
struct json *inspect_recipe(const char *path);
struct json *inspect_media(const char *path);
struct json *inspect_gguf(const char *path);
struct json *inspect_run(const char *directory);
/* Texts, lines, tables, archives and media that are not prepared yet: what each becomes. files: also of each file. */
struct json *inspect_sources(const char *path, bool files, const struct source_columns *columns);

void inspect_show(struct text *out, const struct json *value);
#endif
