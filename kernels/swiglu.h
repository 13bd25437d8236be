/* y = silu(gate) up, silu(g) = g s, s = sigmoid(g) (Shazeer 2020), and its derivatives. */
#ifndef WEFT_SWIGLU_H
#define WEFT_SWIGLU_H
#include "kernels/formula.h"

FORMULA float swiglu_of(float gate, float up, float sigmoid)
{
    return gate * sigmoid * up;
}

/* d silu(g) / dg = s (1 + g (1 - s)) */
FORMULA float swiglu_dgate(float dy, float gate, float up, float sigmoid)
{
    float silu = gate * sigmoid;
    return dy * up * (sigmoid + silu * (1 - sigmoid));
}

FORMULA float swiglu_dup(float dy, float gate, float sigmoid)
{
    return dy * (gate * sigmoid);
}

#endif
