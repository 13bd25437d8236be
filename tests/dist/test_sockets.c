/* Of too many guests, the oldest of the host that has the most goes. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "dist/sockets.h"
#include "tests/test.h"

struct socket_case {
    int number; /* as in a guest, whose address is not all of it */
    struct sockaddr_storage address;
};

static struct socket_case guest_from(const char *host, int port)
{
    struct socket_case guest = {.number = port};
    struct sockaddr_in *four = (struct sockaddr_in *)&guest.address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&guest.address;
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((u16)port);
        return guest;
    }
    assert_int_equal(inet_pton(AF_INET6, host, &six->sin6_addr), 1);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((u16)port);
    return guest;
}

TEST(the_host_with_the_most_guests_loses_its_oldest)
{
    const struct socket_case guests[] = {guest_from("10.0.0.1", 1), guest_from("fd00::2", 2),
                                         guest_from("10.0.0.3", 3), guest_from("fd00::2", 4),
                                         guest_from("10.0.0.1", 5), guest_from("fd00::2", 6)};
    const i64 expected[] = {0, 0, 0, 1, 0, 1}; /* of the first 1, 2, ... guests */
    for (i64 i = 0; i < COUNT_OF(guests); i++)
        assert_int_equal(socket_guest_to_drop(&guests[0].address, sizeof guests[0], i + 1), expected[i]);
    assert_true(socket_same_host(&guests[1].address, &guests[3].address));
    assert_false(socket_same_host(&guests[0].address, &guests[1].address));
}

int main(void)
{
    return tests_run(NULL, NULL);
}
