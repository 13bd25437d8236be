#include "op_cases/op_cases.h"

#include <string.h>

static const struct op_case *const families[] = {gemm_cases,    skinny_cases,    fp8_cases,       conv_cases,
                                                 row_cases,     element_cases,   attention_cases, expert_cases,
                                                 loss_cases,    optimizer_cases, sampling_cases,  policy_cases,
                                                 picture_cases, code_cases,      sound_cases};

const struct op_case *case_at(i64 index)
{
    for (i64 f = 0; f < COUNT_OF(families); f++)
        for (const struct op_case *c = families[f]; c->name; c++)
            if (index-- == 0)
                return c;
    return NULL;
}

const struct op_case *case_find(const char *name)
{
    const struct op_case *c = NULL;
    for (i64 i = 0; (c = case_at(i)) && strcmp(c->name, name) != 0;)
        i++;
    return c;
}
