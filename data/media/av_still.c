/* Reads stills that have no reader of their own, through libav. */
#include "data/media/av_input.h"
#include "data/media/av_scale.h"
#include "data/media/picture.h"
#include <string.h>

static int decode_still(struct av_input *input)
{
    const AVCodec *decoder = avcodec_find_decoder_by_name(input->kind->reader);
    if (!decoder)
        return error_set("%s: this libavcodec cannot read %s; convert it to PNG", input->origin, input->kind->name);
    if (input->count > INT_MAX / 2)
        return error_set("%s: %s of more than 1 GiB; make it smaller", input->origin, input->kind->name);
    if (input_open_decoder(input, decoder) < 0)
        return -1;
    int code = av_new_packet(input->packet, (int)input->count);
    if (code >= 0) {
        memcpy(input->packet->data, input->bytes, (size_t)input->count);
        code = avcodec_send_packet(input->codec, input->packet);
    }
    if (code >= 0) {
        avcodec_send_packet(input->codec, NULL);
        code = avcodec_receive_frame(input->codec, input->frame);
    }
    if (code < 0)
        return av_problem(input->origin, input->kind->name, code);
    return frame_is_damaged(input->frame) ? av_problem(input->origin, input->kind->name, AVERROR_INVALIDDATA) : 0;
}

/* A BMP of 32 bits without masks does not use the fourth byte; libav takes it for transparency. */
static void drop_unused_byte(const struct av_input *input)
{
    const u8 *b = input->bytes;
    if (strcmp(input->kind->reader, "bmp") == 0 && input->count > 34 && b[14] == 40 && b[28] == 32 && b[30] == 0 &&
        input->frame->format == AV_PIX_FMT_BGRA)
        input->frame->format = AV_PIX_FMT_BGR0;
}

static void take_notes(struct picture *out, const struct av_input *input)
{
    const AVFrameSideData *profile = av_frame_get_side_data(input->frame, AV_FRAME_DATA_ICC_PROFILE);
    if (profile)
        buffer_append(&out->profile, profile->data, (i64)profile->size);
}

int av_read_still(struct picture *out, const void *bytes, i64 count, const char *origin,
                  const struct image_request *request, const struct file_kind *kind)
{
    struct av_input input;
    struct scaler scaler = {.rules = request->rules};
    *out = (struct picture){0};
    input_init(&input, bytes, count, origin, kind);
    input.most_pixels = request->rules->most_pixels;
    input.strict = true;
    int status = decode_still(&input);
    if (status == 0)
        status = picture_check_size(input.frame->height, input.frame->width, origin, request);
    if (status == 0)
        drop_unused_byte(&input);
    int code = status == 0 ? frame_unpack(out, &scaler, input.frame) : 0;
    if (code < 0)
        status = av_problem(origin, "a frame could not be converted", code);
    if (status == 0)
        take_notes(out, &input);
    input_close(&input);
    scaler_release(&scaler);
    return status;
}
