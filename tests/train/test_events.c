/* TensorBoard event files, compared byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "train/events.h"

static void assert_hex(const struct buffer *record, const char *hex)
{
    assert_int_equal((i64)strlen(hex), 2 * record->length);
    for (i64 i = 0; i < record->length; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", (u8)record->data[i]);
        assert_memory_equal(two, hex + 2 * i, 2);
    }
}

static void the_first_record_names_the_version(void **state)
{
    (void)state;
    struct buffer event = {0}, record = {0};
    events_encode(&event, 0, 1700000000.0, "brain.Event:2", NULL, 0);
    events_record(&record, event.data, event.length);
    assert_hex(&record, "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
    buffer_release(&event);
    buffer_release(&record);
}

static void a_scalar_is_written_as_tensorboard_reads_it(void **state)
{
    (void)state;
    struct buffer event = {0}, record = {0};
    const struct event_value value = {"loss", 2.5};
    events_encode(&event, 7, 1700000000.0, NULL, &value, 1);
    events_record(&record, event.data, event.length);
    assert_hex(&record, "1a00000000000000129bd82d0900000040fc54d94110072a0d0a0b0a046c6f73731500002040"
                        "2d15b4a5");
    buffer_release(&event);
    buffer_release(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_record_names_the_version),
                                       cmocka_unit_test(a_scalar_is_written_as_tensorboard_reads_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
