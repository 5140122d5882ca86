"""Wrong kernels of convolution, a row for each."""

import numpy as np

from convref.conformance.mutations import flipped, on_problem, sides_swapped, zeroed

from . import mistakes as m
from .base import Fault, only_result, reading, without_operand, writing
from .mistakes import (
    any_axis,
    computes,
    dilated,
    fprop,
    is_padded_unevenly,
    is_plain_conv,
    last_order,
    per_group,
    strided,
)

ROWS = (
    Fault(
        "six_channels",
        "pytorch#21597: six input channels, taken four at a time",
        "conv.fprop:n1c6k1_i1_f1:fill=ones",
        lambda call: is_plain_conv(call) and per_group(call) == 6,
        reading("x", m.channels_from(4)),
    ),
    Fault(
        "tail_channels",
        "modular#6248: more than 8 channels, the tail of a vector dropped",
        "conv.fprop:n1c9k1_i1_f1:fill=ones",
        lambda call: is_plain_conv(call) and per_group(call) > 8 and per_group(call) % 8 > 0,
        reading("x", m.tail_channels),
    ),
    Fault(
        "channels_last_filter",
        "pytorch#82060: channels-last filter of one input channel",
        "conv.fprop:n1c1k1_i2_f2:mem=w.owi",
        lambda call: is_plain_conv(call) and last_order(call, "w") and per_group(call) == 1,
        reading("w", flipped),
    ),
    Fault(
        "transposed_channels_last_filter",
        "pytorch#99519: transposed, channels-last filter, output not initialised",
        "conv.fprop:n1c1k2_i1_f1:t=1:mem=w.iwo:fill=ones",
        lambda call: (
            fprop(call) and call.conv.transposed and last_order(call, "w") and call.conv.k > 1
        ),
        writing("y", zeroed(lambda call: np.s_[:, call.conv.k // 2 :], np.nan)),
    ),
    Fault(
        "filter_order_ignored",
        "pytorch#55781: non-contiguous filter read as if contiguous",
        "conv.fprop:n1c2k1_i2_f2:mem=w.owi",
        lambda call: fprop(call) and bool(call.spec("w").order),
        reading("w", m.as_contiguous),
    ),
    Fault(
        "input_steps_ignored",
        "strided input read as if dense",
        "conv.fprop:n1c1k1_i2_f1:mem=x.step2w:fill=ones",
        lambda call: fprop(call) and bool(call.spec("x").step),
        reading("x", m.steps_ignored),
    ),
    Fault(
        "cotangent_offset_ignored",
        "view with an offset read from the start of its storage",
        "conv.bgrad:n1c1k1_i1_f1:mem=dy.off1:fill=ones",
        lambda call: call.pass_ == "backward" and call.spec("dy").offset > 0,
        reading("y", m.offset_ignored),
    ),
    Fault(
        "expanded_cotangent",
        "stride 0 of an expanded grad_output not understood",
        "conv.bgrad:n2c1k1_i1_f1:mem=dy.expandn:fill=ones",
        lambda call: call.pass_ == "backward" and m.repeats(call, "dy"),
        reading("y", m.first_slice_only),
    ),
    Fault(
        "negative_low_padding",
        "xla#48713: low padding below 0 with 8 to 16 channels",
        "conv.fprop:n1c8k1_i2_f1_p-1,0",
        lambda call: (
            is_plain_conv(call)
            and 8 <= per_group(call) <= 16
            and any_axis(call, lambda a: a.lo < 0)
        ),
        on_problem(m.crop_forgotten),
    ),
    Fault(
        "filter_above_image",
        "pytorch#195394, oneDNN#5942: filter larger than the image",
        "conv.fprop:n1c1k1_i1_f2_p1,0:fill=ones",
        lambda call: is_plain_conv(call) and any_axis(call, lambda axis: axis.taps > axis.big),
        reading("w", m.taps_beyond_image),
    ),
    Fault(
        "window_in_padding",
        "a window wholly in padding is skipped, and its bias with it",
        "conv.fprop:n1c1k1_i1_f1_p1,0:fill=ones",
        lambda call: is_plain_conv(call) and call.conv.bias,
        writing("y", m.windows_in_padding),
    ),
    Fault(
        "dilation_with_stride",
        "dilation ignored where there is a stride too",
        "conv.fprop:n1c1k1_i3_f2_s2_d2",
        lambda call: is_plain_conv(call) and any_axis(call, strided, dilated),
        on_problem(m.dense),
    ),
    Fault(
        "transposed_dilation_with_stride",
        "onnxruntime#2518: transposed, stride 2 with dilation 3",
        "conv.fprop:n1c1k1_i1_f2_s2_d2:t=1:fill=ones",
        lambda call: fprop(call) and call.conv.transposed and any_axis(call, strided, dilated),
        on_problem(m.dense),
    ),
    Fault(
        "transposed_bfloat16",
        "pytorch#148973: ConvTranspose1d, bf16, stride 2, dilation 2",
        "conv.fprop:n1c1k1_i1_f2_s2_d2:t=1:dt=bf16:fill=ones",
        lambda call: (
            fprop(call)
            and call.conv.transposed
            and call.dtype == "bf16"
            and call.problem.rank == 1
            and any_axis(call, strided, dilated)
        ),
        on_problem(m.dense),
    ),
    Fault(
        "grouped_outputs",
        "modular#6129: groups, outputs of each a multiple of the vector; all read the first group",
        "conv.fprop:n1c2k8g2_i1_f1",
        lambda call: (
            is_plain_conv(call)
            and call.conv.groups > 1
            and call.conv.k // call.conv.groups % 4 == 0
            and call.conv.k > 0
        ),
        reading("x", m.first_group),
    ),
    Fault(
        "filter_gradient_of_many_images",
        "pytorch#96225: filter gradient of a large batch",
        "conv.wgrad:n5c1k1_i1_f1:fill=ones",
        lambda call: computes(call, "dw") and call.problem.n > 4,
        m.first_images(4),
    ),
    Fault(
        "filter_gradient_of_one_image",
        "transposed filter gradient of the first image alone",
        "conv.wgrad:n2c1k1_i1_f1:t=1:fill=ones",
        lambda call: computes(call, "dw") and call.conv.transposed,
        m.first_images(1),
    ),
    Fault(
        "narrow_sums",
        "pytorch#163347: bf16 products summed in bf16",
        "conv.fprop:n1c1k1_i9_f1:dt=bf16:fill=normal:seed=65534",
        lambda call: fprop(call) and call.dtype == "bf16",
        m.sum_by_channel,
    ),
    Fault(
        "stride_three_tail",
        "pytorch#169688: stride 3, the last column",
        "conv.fprop:n1c1k1_i1_f1_s3:fill=ones",
        lambda call: is_plain_conv(call) and call.problem.stride[-1] == 3,
        writing("y", zeroed(lambda call: np.s_[..., -1:])),
    ),
    Fault(
        "last_row_unwritten",
        "tt-metal#14260: the last row of an odd number of rows is never written",
        "conv.fprop:n1c1k1_i3x1_f1x1:fill=ones",
        lambda call: (
            is_plain_conv(call)
            and call.problem.rank == 2
            and call.problem.output[0] > 1
            and call.problem.output[0] % 2 == 1
        ),
        writing("y", zeroed(lambda call: np.s_[:, :, -1:], np.nan)),
    ),
    Fault(
        "high_padding_for_low",
        "onnxruntime#26708: pads[1] taken for pads[2]",
        "conv.fprop:n1c1k1_i1_f1_p0,1:fill=ones",
        lambda call: is_plain_conv(call) and any_axis(call, is_padded_unevenly),
        on_problem(sides_swapped),
    ),
    Fault(
        "padding_of_the_other_axis",
        "padding of rows and columns exchanged",
        "conv.fprop:n1c1k1_i1x1_f1x1_p0,0x1,0:fill=ones",
        lambda call: is_plain_conv(call) and call.problem.rank == 2,
        on_problem(m.axes_swapped),
    ),
    Fault(
        "strided_volume",
        "mlx#2038: conv3d, stride 2, asymmetric padding",
        "conv.fprop:n1c1k1_i1x1x1_f1x1x1_s2x1x1_p1,0x0,0x0,0:fill=ones",
        lambda call: (
            is_plain_conv(call)
            and call.problem.rank == 3
            and any_axis(call, strided, is_padded_unevenly)
        ),
        on_problem(sides_swapped),
    ),
    Fault(
        "bfloat16_volume",
        "pytorch#163539: conv3d in bf16, the last slice of the filter",
        "conv.fprop:n1c1k1_i2x1x1_f2x1x1:dt=bf16:fill=ones",
        lambda call: (
            is_plain_conv(call)
            and call.dtype == "bf16"
            and call.problem.rank == 3
            and call.problem.filter[0] > 1
        ),
        reading("w", zeroed(lambda call: np.s_[:, :, -1:])),
    ),
    Fault(
        "output_padding_unwritten",
        "onnxruntime#11927: output padding gets no bias",
        "conv.fprop:n1c1k1_i1_f1_s2:t=1:op=1:fill=ones",
        lambda call: fprop(call) and any(call.conv.output_padding),
        writing("y", m.output_padding_unwritten),
    ),
    Fault(
        "ungrouped_filter_gradient",
        "mlx#2184: shape of the filter gradient with groups",
        "conv.wgrad:n1c2k2g2_i1_f1:fill=ones",
        lambda call: computes(call, "dw") and call.conv.groups > 1,
        writing("w", m.ungrouped),
    ),
    Fault(
        "filter_gradient_shuffled",
        "tensorflow_macos#230: filter gradient shuffled for more than one channel",
        "conv.wgrad:n1c2k1_i2_f2",
        lambda call: computes(call, "dw") and min(call.problem.shape("w")[1], *m.spans(call)) > 1,
        writing("w", m.shuffled),
    ),
    Fault(
        "dropped_product",
        "one product of a long sum is left out",
        "conv.fprop:n1c2k1_i5_f5:fill=ones",
        lambda call: (
            is_plain_conv(call) and call.products("y") > 9 and bool(call.problem.n * call.conv.k)
        ),
        m.last_product_dropped,
    ),
    Fault(
        "bias_gradient_axes",
        "bias gradient summed over the wrong axes where both have one length",
        "conv.bgrad:n1c1k2_i2_f1",
        lambda call: computes(call, "db") and call.conv.k == call.problem.output[0],
        m.bias_gradient_axes,
    ),
    Fault(
        "bias_gradient_narrow",
        "bias gradient summed in the 16-bit type of grad_output",
        "conv.bgrad:n1c1k1_i4_f1:dt=f16:fill=normal:seed=65532",
        lambda call: computes(call, "db") and call.dtype in ("f16", "bf16") and call.conv.k > 0,
        m.narrow_bias_gradient,
    ),
    Fault(
        "no_images",
        "filter gradient of an empty batch is not initialised",
        "conv.wgrad:n0c1k1_i1_f1:fill=ones",
        lambda call: computes(call, "dw") and call.problem.n == 0,
        writing("w", zeroed(lambda call: ..., np.nan)),
    ),
    Fault(
        "tangent_dropped",
        "JVP without the term of the input's tangent",
        "conv.jvp:n1c1k1_i1_f1:tan=x:fill=ones",
        lambda call: call.pass_ == "jvp" and call.is_present("x_dot"),
        without_operand(3),
    ),
    Fault(
        "bias_twice",
        "bias added by the kernel and once more after it",
        "conv.jvp:n1c1k1_i1_f1:tan=0:fill=ones",
        lambda call: call.pass_ == "jvp" and call.conv.bias,
        m.bias_twice,
    ),
    Fault(
        "double_backward_term",
        "double backward without fprop(x, ddw)",
        "conv.double_backward:n1c1k1_i1_f1:tan=w:mask=100:fill=ones",
        lambda call: call.pass_ == "double_backward" and "ddy" in call.wanted,
        m.without_second_term,
    ),
    Fault(
        "second_derivative_padding",
        "jax#563: padding of the transpose rule in the second derivative of a strided convolution",
        "conv.double_backward:n1c1k1_i1_f1_s2_p1,0:tan=x:mask=001:fill=ones",
        lambda call: (
            call.pass_ == "double_backward"
            and "dw" in call.wanted
            and any_axis(call, strided, is_padded_unevenly)
        ),
        only_result(2, on_problem(sides_swapped)),
    ),
    Fault(
        "conjugate_missing",
        "complex input gradient with the filter instead of its conjugate",
        "conv.dgrad:n1c1k1_i1_f1:dt=c64",
        lambda call: computes(call, "dx"),
        only_result(0, reading("w", m.conjugated)),
        ("c64", "c128"),
    ),
    Fault(
        "conjugate_exchanged",
        "complex transposed filter gradient with the conjugate on the wrong factor",
        "conv.wgrad:n1c1k1_i1_f1:t=1:dt=c64",
        lambda call: computes(call, "dw") and call.conv.transposed,
        writing("w", m.conjugated),
        ("c64", "c128"),
    ),
    Fault(
        "saturates",
        "int8 result saturates where it should wrap",
        "conv.fprop:n1c1k1_i1_f1:dt=i8:fill=wide:seed=65535",
        fprop,
        m.saturated,
        ("i8",),
    ),
    Fault(
        "grouped_int8",
        "xla#49123: int8, two groups, four channels, 1x1",
        "conv.fprop:n1c4k4g2_i1_f1:dt=i8",
        lambda call: (
            is_plain_conv(call)
            and call.dtype == "i8"
            and call.conv.groups == 2
            and per_group(call) % 2 == 0
            and set(call.problem.filter) == {1}
        ),
        reading("x", m.first_group),
        ("i8",),
    ),
    Fault(
        "flushes_subnormals",
        "subnormal operands and results flushed, without a declaration",
        "conv.fprop:n1c1k1_i1_f1:fill=subnormal:seed=65535",
        lambda call: fprop(call) and call.dtype == "f32",
        writing("y", m.flushed),
    ),
    Fault(
        "through_half",
        "float32 filter gradient rounded to float16 on its way",
        "conv.wgrad:n1c1k1_i1_f1:fill=normal",
        lambda call: computes(call, "dw") and call.dtype == "f32",
        writing("w", m.through_half),
    ),
    Fault(
        "truncated",
        "bf16 result truncated, not rounded",
        "conv.fprop:n1c1k1_i4_f1:dt=bf16:fill=positive:seed=65534",
        lambda call: fprop(call) and call.dtype == "bf16",
        m.truncated,
    ),
    Fault(
        "nan_swallowed",
        "a maximum with 0 that turns NaN into 0",
        "conv.fprop:n1c1k1_i1_f1_p0,1:fill=inf:seed=65533",
        lambda call: fprop(call) and call.dtype == "f32",
        writing("y", m.nan_to_zero),
    ),
    Fault(
        "infinity_clamped",
        "an infinity becomes the largest number",
        "conv.dgrad:n1c1k1_i1_f1:fill=inf:seed=65535",
        lambda call: computes(call, "dx") and call.dtype == "f32",
        writing("x", m.clamped),
    ),
    Fault(
        "input_scaled_in_place",
        "workspace shared with the input",
        "conv.dgrad:n1c1k1_i1_f1:t=1:fill=ones",
        lambda call: computes(call, "dx") and call.conv.transposed,
        m.scaled_in_place,
    ),
    Fault(
        "depthwise_dtype",
        "depthwise filter gradient comes back in float32",
        "conv.wgrad:n1c2k2g2_i1_f1:dt=f16:fill=ones",
        lambda call: (
            computes(call, "dw") and call.dtype == "f16" and call.conv.groups == call.problem.c > 1
        ),
        writing("w", m.wide_dtype),
    ),
    Fault(
        "squeezed",
        "an output of one position loses its spatial axes",
        "conv.fprop:n1c1k1_i1x1_f1x1:fill=ones",
        lambda call: is_plain_conv(call) and call.problem.output == (1, 1),
        writing("y", m.squeezed),
    ),
    Fault(
        "nondeterministic_gradient",
        "pytorch#34344: partial sums of the filter gradient added in any order",
        "conv.wgrad:n3c1k1_i1_f1:dt=f64:fill=normal:seed=65535",
        lambda call: computes(call, "dw") and call.dtype == "f64" and call.products("dw") > 2,
        writing("w", m.last_bit_differs),
    ),
    Fault(
        "mask_ignored",
        "filter gradient returned although it is masked off",
        "conv.dgrad:n1c1k1_i1_f1:fill=ones",
        lambda call: call.pass_ == "backward" and not call.mask[1],
        m.compute_masked_off,
    ),
    Fault(
        "bias_gradient_absent",
        "no bias gradient unless the input gradient is wanted too",
        "conv.bgrad:n1c1k1_i1_f1:fill=ones",
        lambda call: computes(call, "db") and not call.mask[0],
        m.no_bias_gradient,
    ),
    Fault(
        "flip_ignored",
        "true convolution computed as cross-correlation",
        "conv.fprop:n1c1k1_i2_f2:flip=1",
        lambda call: is_plain_conv(call) and call.conv.flip,
        reading("w", flipped),
    ),
    Fault(
        "stride_of_the_other_axis",
        "rows take the stride of the columns where the image has one column",
        "conv.fprop:n1c1k1_i3x1_f1x1_s2x1",
        lambda call: is_plain_conv(call) and call.problem.rank == 2 and call.problem.input[1] == 1,
        on_problem(m.last_stride),
    ),
    Fault(
        "third_image",
        "images from the third on repeat the second",
        "conv.fprop:n3c1k1_i1_f1",
        lambda call: is_plain_conv(call) and call.problem.n > 2,
        writing("y", m.second_image_again),
    ),
    Fault(
        "channels_last_filter_in_dgrad",
        "input gradient misreads a channels-last filter",
        "conv.dgrad:n1c1k1_i1_f2_p0,1:mem=w.owi",
        lambda call: computes(call, "dx") and last_order(call, "w"),
        only_result(0, reading("w", flipped)),
    ),
    Fault(
        "seventeenth_column",
        "modular#6461: the column after a full vector",
        "conv.fprop:n1c1k1_i17_f1:fill=ones",
        lambda call: is_plain_conv(call) and call.problem.output[-1] > 16,
        writing("y", zeroed(lambda call: np.s_[..., 16])),
    ),
)
