/* Rewards and environments as programs: any program that reads JSON lines on stdin and writes one line for each,
 *
 *   in
 * {"id":0,"data_source":..,"ability":..,"prompt":[..],"response":"..","ground_truth":..,"extra_info":{..},"turn":0} out
 * {"score":0.5}   or   {"observation":"text told to the model, which then goes on"}
 *
 * in the order of the questions, or in any order with their "id". It runs under a time limit for all lines together, in
 * a process group of its own that is killed when the limit has passed. */
#ifndef WEFT_RL_PROGRAM_H
#define WEFT_RL_PROGRAM_H
#include "core/json.h"

/* answers [count], each an object, json_free by the caller. argv ends with NULL. -1 and a message: the program cannot
 * be started, ended too early, ran too long, wrote something else; no answers then. */
int program_ask(struct json **answers, char *const *argv, struct json *const *questions, i64 count, double seconds);

#endif
