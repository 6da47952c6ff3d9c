"""Layers and losses, forward and backward, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.virtual.agree import same_as_cpu

F: Any = torch.nn.functional  # its annotations leave out some of what it takes


def _random(device: str, *shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _whole(device: str, high: int, *shape: int, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, high, shape, generator=generator).to(device)


def _itself(layer: Any) -> Any:
    return layer


def _last(layer: Any) -> Any:
    return layer.to(memory_format=torch.channels_last)


def _first(output: Any) -> Any:
    while isinstance(output, tuple):
        output = output[0]
    return output


def _step(device: str, layer: Callable[[], Any], *inputs: torch.Tensor) -> Any:
    """Output, loss gradients and buffers of a layer in training, and its output in evaluation."""
    torch.manual_seed(7)
    module = layer().to(device)
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    output = module(*leaves)
    _first(output).square().sum().backward()
    module.eval()
    with torch.no_grad():
        quiet = module(*inputs)
    gradients = [p.grad for p in module.parameters()] + [x.grad for x in leaves]
    return output, gradients, dict(module.named_buffers()), quiet


@same_as_cpu
def test_convolutions(device: str) -> Any:
    line, plane = _random(device, 2, 4, 9), _random(device, 2, 4, 7, 7)
    cube = _random(device, 1, 2, 5, 5, 5)
    last = plane.to(memory_format=torch.channels_last)
    return [
        _step(device, lambda: nn.Conv1d(4, 6, 3, padding=1), line),
        _step(device, lambda: nn.Conv2d(4, 6, 3, stride=2), plane),
        _step(device, lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), plane),
        _step(device, lambda: nn.Conv2d(4, 6, 3, padding="same", dilation=2), plane),
        _step(device, lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), plane),
        _step(device, lambda: _last(nn.Conv2d(4, 6, 3)), last),
        _step(device, lambda: nn.Conv2d(4, 6, 1), last),
        _step(device, lambda: nn.Conv3d(2, 3, 2), cube),
        _step(device, lambda: nn.ConvTranspose1d(4, 2, 3, stride=2), line),
        _step(device, lambda: nn.ConvTranspose2d(4, 2, 3, output_padding=1, stride=2), plane),
        _step(device, lambda: nn.Unfold(3), plane),
        _step(device, lambda: nn.Fold((4, 4), (2, 2), stride=2), _random(device, 1, 8, 4)),
    ]


@same_as_cpu
def test_pooling_and_resizing(device: str) -> Any:
    line, plane = _random(device, 2, 4, 9), _random(device, 2, 4, 8, 8)
    cube = _random(device, 1, 2, 4, 4, 4)
    layers: list[tuple[Callable[[], Any], torch.Tensor]] = [
        (lambda: nn.MaxPool1d(2), line),
        (lambda: nn.MaxPool2d(3, 2, 1), plane),
        (lambda: nn.MaxPool2d(2, return_indices=True), plane),
        (lambda: nn.MaxPool3d(2), cube),
        (lambda: nn.AvgPool1d(2), line),
        (lambda: nn.AvgPool2d(2, padding=1, count_include_pad=False), plane),
        (lambda: nn.AvgPool3d(2), cube),
        (lambda: nn.AdaptiveAvgPool2d(1), plane),
        (lambda: nn.AdaptiveAvgPool2d(3), plane),
        (lambda: nn.AdaptiveMaxPool2d(3), plane),
        (lambda: nn.LPPool2d(2, 2), plane),
        (lambda: nn.Upsample(scale_factor=2), plane),
        (lambda: nn.Upsample(size=(5, 5), mode="bilinear", align_corners=False), plane),
        (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), plane),
        (lambda: nn.Upsample(scale_factor=2, mode="linear"), line),
        (lambda: nn.Upsample(scale_factor=0.5, mode="trilinear"), cube),
        (lambda: nn.PixelShuffle(2), plane),
        (lambda: nn.PixelUnshuffle(2), plane),
        (lambda: nn.ChannelShuffle(2), plane),
        (lambda: nn.ReflectionPad2d(1), plane),
        (lambda: nn.ReplicationPad3d(1), cube),
        (lambda: nn.CircularPad1d(2), line),
        (lambda: nn.ZeroPad2d(1), plane),
    ]
    found = [_step(device, layer, data) for layer, data in layers]
    values, where = F.max_pool2d(plane, 2, return_indices=True)
    found.append(F.max_unpool2d(values, where, 2))
    grid = F.affine_grid(_random(device, 2, 2, 3), [2, 4, 5, 5], align_corners=False)
    found += [
        F.grid_sample(plane, grid, align_corners=False),
        F.interpolate(plane, antialias=True, mode="bilinear", size=4),
    ]
    return found


@same_as_cpu
def test_normalisation(device: str) -> Any:
    flat, line, plane = _random(device, 6, 4), _random(device, 3, 4, 5), _random(device, 2, 4, 3, 3)
    last = plane.to(memory_format=torch.channels_last)
    return [
        _step(device, lambda: nn.BatchNorm1d(4), flat),
        _step(device, lambda: nn.BatchNorm1d(4), line),
        _step(device, lambda: nn.BatchNorm2d(4), plane),
        _step(device, lambda: nn.BatchNorm2d(4, affine=False), last),
        _step(device, lambda: nn.BatchNorm2d(4, track_running_stats=False), plane),
        _step(device, lambda: nn.BatchNorm2d(4, momentum=None), plane),
        _step(device, lambda: nn.LayerNorm(4), flat),
        _step(device, lambda: nn.LayerNorm((4, 5), elementwise_affine=False), line),
        _step(device, lambda: nn.RMSNorm(4), flat),
        _step(device, lambda: nn.GroupNorm(2, 4), plane),
        _step(device, lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), plane),
        _step(device, lambda: nn.LocalResponseNorm(2), plane),
        F.normalize(flat),
        F.normalize(flat, 1, 0),
    ]


@same_as_cpu
def test_embeddings(device: str) -> Any:
    words = _whole(device, 10, 3, 4)
    bag, offsets = _whole(device, 10, 7), torch.tensor([0, 3, 5], device=device)
    found = [
        _step(device, lambda: nn.Embedding(10, 5), words),
        _step(device, lambda: nn.Embedding(10, 5, padding_idx=0), words),
        _step(device, lambda: nn.Embedding(10, 5, max_norm=1.0), words),
        _step(device, lambda: nn.Embedding(10, 5, scale_grad_by_freq=True), words),
        F.one_hot(words, 10),
        F.one_hot(words),
    ]
    for mode in ("sum", "mean", "max"):
        found.append(_step(device, partial(nn.EmbeddingBag, 10, 5, mode=mode), bag, offsets))
        found.append(_step(device, partial(nn.EmbeddingBag, 10, 5, mode=mode), words))
    return found


@same_as_cpu
def test_recurrent_layers(device: str) -> Any:
    data, hidden = _random(device, 5, 3, 4), _random(device, 1, 3, 6)
    return [
        _step(device, lambda: nn.RNN(4, 6), data),
        _step(device, lambda: nn.RNN(4, 6, nonlinearity="relu"), data, hidden),
        _step(device, lambda: nn.LSTM(4, 6, 2, bidirectional=True), data),
        _step(device, lambda: nn.LSTM(4, 6, batch_first=True, proj_size=2), data),
        _step(device, lambda: nn.GRU(4, 6, 2), data),
        _step(device, lambda: nn.GRU(4, 6, bias=False), data, hidden),
        _step(device, lambda: nn.RNNCell(4, 6), data[0]),
        _step(device, lambda: nn.LSTMCell(4, 6), data[0]),
        _step(device, lambda: nn.GRUCell(4, 6), data[0]),
    ]


@same_as_cpu
def test_packed_sequences(device: str) -> Any:
    from torch.nn.utils import rnn

    torch.manual_seed(3)
    layer = nn.LSTM(4, 6, batch_first=True).to(device)
    data = _random(device, 3, 5, 4).requires_grad_()
    found = []
    for lengths, sort in ((torch.tensor([5, 3, 2]), True), (torch.tensor([2, 5, 3]), False)):
        packed = rnn.pack_padded_sequence(data, lengths, batch_first=True, enforce_sorted=sort)
        output, state = layer(packed)
        padded, sizes = rnn.pad_packed_sequence(output, batch_first=True)
        padded.sum().backward()
        found += [padded, sizes, state, packed.data, packed.batch_sizes, data.grad]
    sequences = [_random(device, n, 2, seed=n) for n in (3, 1)]
    return found, rnn.pad_sequence(sequences), rnn.pack_sequence(sequences).data


@same_as_cpu
def test_attention(device: str) -> Any:
    query, key, value = (_random(device, 2, 2, 5, 4, seed=n) for n in (1, 2, 3))
    mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril()
    bias = _random(device, 5, 5, seed=4)
    attend = F.scaled_dot_product_attention
    found = [
        attend(query, key, value),
        attend(query, key, value, is_causal=True),
        attend(query, key, value, attn_mask=mask),
        attend(query, key, value, attn_mask=bias),
        attend(query, key, value, scale=0.5),
        attend(query.half(), key.half(), value.half()),
        attend(query.bfloat16(), key.bfloat16(), value.bfloat16()),
        attend(query, key[:, :1], value[:, :1], enable_gqa=True),
    ]
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    attend(*leaves, is_causal=True).sum().backward()
    found += [x.grad for x in leaves]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found.append(attend(query, key, value))
    return found


@same_as_cpu
def test_transformers(device: str) -> Any:
    data, memory = _random(device, 2, 5, 8), _random(device, 2, 4, 8, seed=2)
    causal = nn.Transformer.generate_square_subsequent_mask(5, torch.device(device))
    padding = torch.zeros(2, 5, dtype=torch.bool, device=device)
    padding[0, 3:] = True
    torch.manual_seed(5)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to(device)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    stack = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False).to(device)
    whole = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True).to(device)
    found = [
        attention(data, data, data),
        attention(data, memory, memory, need_weights=False),
        attention(data, data, data, attn_mask=causal, key_padding_mask=padding),
        encoder(data),
        encoder(data, causal),
        encoder(data, src_key_padding_mask=padding),
        decoder(data, memory, tgt_mask=causal),
        stack(data),
        whole(memory, data, tgt_mask=causal),
    ]
    sum(_first(output).sum() for output in found).backward()
    found += [p.grad for p in [*attention.parameters(), *stack.parameters(), *whole.parameters()]]
    encoder.eval()
    stack.eval()
    with torch.no_grad():  # the path that fuses a whole layer
        found += [encoder(data), stack(data), encoder(data, src_key_padding_mask=padding)]
    with torch.inference_mode():
        found.append(stack(data).clone())
    return found


@same_as_cpu
def test_activations(device: str) -> Any:
    data = _random(device, 3, 4)
    layers = [
        nn.ReLU(),
        nn.ReLU(inplace=False),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.SiLU(),
        nn.Mish(),
        nn.ELU(),
        nn.CELU(),
        nn.SELU(),
        nn.Sigmoid(),
        nn.Tanh(),
        nn.Softmax(-1),
        nn.LogSoftmax(1),
        nn.Softplus(),
        nn.LeakyReLU(0.1),
        nn.PReLU(),
        nn.Hardtanh(),
        nn.Hardswish(),
        nn.Hardsigmoid(),
        nn.Softsign(),
        nn.Softmin(1),
        nn.Tanhshrink(),
        nn.Hardshrink(),
        nn.Softshrink(),
        nn.Threshold(0.1, 2),
        nn.GLU(),
        nn.LogSigmoid(),
        nn.ReLU6(),
        nn.Identity(),
        nn.Flatten(),
        nn.Bilinear(4, 4, 2),
    ]
    found = []
    for layer in layers:
        inputs = (data, data) if isinstance(layer, nn.Bilinear) else (data,)
        found.append(_step(device, partial(_itself, layer), *inputs))
    return found


@same_as_cpu
def test_losses(device: str) -> Any:
    logits, target = _random(device, 6, 5).requires_grad_(), _whole(device, 5, 6)
    values, other = _random(device, 6, 5, seed=2), _random(device, 6, 5, seed=3)
    sign = _whole(device, 2, 6).float() * 2 - 1
    chances, weights = torch.softmax(values, 1), torch.arange(1.0, 6, device=device)
    losses = [
        F.cross_entropy(logits, target),
        F.cross_entropy(logits, target, weights),
        F.cross_entropy(logits, target, ignore_index=2, label_smoothing=0.1),
        F.cross_entropy(logits, chances),
        F.nll_loss(F.log_softmax(logits, 1), target),
        F.mse_loss(logits, values),
        F.l1_loss(logits, values),
        F.smooth_l1_loss(logits, values),
        F.huber_loss(logits, values),
        F.binary_cross_entropy_with_logits(logits, chances),
        F.binary_cross_entropy(torch.sigmoid(logits), chances),
        F.kl_div(logits, chances, reduction="batchmean"),
        F.hinge_embedding_loss(logits, sign[:, None].expand(6, 5)),
        F.cosine_embedding_loss(logits, values, sign),
        F.margin_ranking_loss(logits[:, 0], values[:, 0], sign),
        F.triplet_margin_loss(logits, values, other),
        F.multi_margin_loss(logits, target),
        F.multilabel_soft_margin_loss(logits, chances.round()),
        F.soft_margin_loss(logits, sign[:, None]),
        F.poisson_nll_loss(logits, chances),
        F.gaussian_nll_loss(logits, values, chances),
        F.cosine_similarity(logits, values).sum(),
        F.pairwise_distance(logits, values).sum(),
        F.multilabel_margin_loss(logits, _whole(device, 5, 6, 5)),
        F.pdist(logits).sum(),
    ]
    steps = torch.log_softmax(_random(device, 8, 2, 5, seed=4), 2).requires_grad_()
    labels = _whole(device, 4, 2, 3) + 1
    lengths = torch.tensor([8, 7]), torch.tensor([3, 2])
    losses.append(F.ctc_loss(steps, labels, *lengths))
    losses.append(F.ctc_loss(steps, labels, *(x.to(device) for x in lengths), zero_infinity=True))
    sum(losses).backward()
    dense = _random(device, 2, 3, 4, 4).requires_grad_()
    segment = F.cross_entropy(dense, _whole(device, 3, 2, 4, 4))
    segment.backward()
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(5, 9, [3, 6])
    with torch.no_grad():
        for parameter in adaptive.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) / 50)
    split = adaptive.to(device)(values, _whole(device, 9, 6))
    return losses, logits.grad, steps.grad, segment, dense.grad, split.output, split.loss


@same_as_cpu
def test_layers_in_lower_precision(device: str) -> Any:
    found = []
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        torch.manual_seed(2)
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)
        ).to(device, dtype)
        data = _random(device, 2, 3, 5, 5).to(dtype)
        output = model(data)
        output.float().square().sum().backward()
        found += [output, *[p.grad for p in model.parameters()], model[1].running_mean]
    return found
