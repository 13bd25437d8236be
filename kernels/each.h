/* EACH(DO, with, a, b, ...) expands to DO(with, a) DO(with, b) ... for up to 16 arguments. It
 * iterates over the arguments of an op from WEFT_OPS. */
#ifndef WEFT_EACH_H
#define WEFT_EACH_H

#define EACH1(DO, with, x) DO(with, x)
#define EACH2(DO, with, x, ...) DO(with, x) EACH1(DO, with, __VA_ARGS__)
#define EACH3(DO, with, x, ...) DO(with, x) EACH2(DO, with, __VA_ARGS__)
#define EACH4(DO, with, x, ...) DO(with, x) EACH3(DO, with, __VA_ARGS__)
#define EACH5(DO, with, x, ...) DO(with, x) EACH4(DO, with, __VA_ARGS__)
#define EACH6(DO, with, x, ...) DO(with, x) EACH5(DO, with, __VA_ARGS__)
#define EACH7(DO, with, x, ...) DO(with, x) EACH6(DO, with, __VA_ARGS__)
#define EACH8(DO, with, x, ...) DO(with, x) EACH7(DO, with, __VA_ARGS__)
#define EACH9(DO, with, x, ...) DO(with, x) EACH8(DO, with, __VA_ARGS__)
#define EACH10(DO, with, x, ...) DO(with, x) EACH9(DO, with, __VA_ARGS__)
#define EACH11(DO, with, x, ...) DO(with, x) EACH10(DO, with, __VA_ARGS__)
#define EACH12(DO, with, x, ...) DO(with, x) EACH11(DO, with, __VA_ARGS__)
#define EACH13(DO, with, x, ...) DO(with, x) EACH12(DO, with, __VA_ARGS__)
#define EACH14(DO, with, x, ...) DO(with, x) EACH13(DO, with, __VA_ARGS__)
#define EACH15(DO, with, x, ...) DO(with, x) EACH14(DO, with, __VA_ARGS__)
#define EACH16(DO, with, x, ...) DO(with, x) EACH15(DO, with, __VA_ARGS__)
#define SEVENTEENTH(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, name, ...) name
#define EACH(DO, with, ...)                                                                                            \
    SEVENTEENTH(__VA_ARGS__, EACH16, EACH15, EACH14, EACH13, EACH12, EACH11, EACH10, EACH9, EACH8, EACH7, EACH6,       \
                EACH5, EACH4, EACH3, EACH2, EACH1, )                                                                   \
    (DO, with, __VA_ARGS__)
#define UNWRAP(...) __VA_ARGS__

#endif
