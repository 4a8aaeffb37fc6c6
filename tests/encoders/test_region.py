"""Images as sets of region features: padding is nothing, whatever is wrong has a message."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convert.official_style import FEATURES, HIDDEN, SIZE, region_state
from tests.encoders import naive
from tests.pooling.support import make_sets, set_batches
from torch import Tensor

from vse.encoders import RegionEncoder
from vse.encoders.image import HEADS, ClassWordsProjection, create_projection
from vse.errors import InputError
from vse.pooling import GPO, create_pooling

RUBBISH = [0.0, 1e4, float("nan"), float("inf"), float("-inf")]
few = settings(max_examples=20)
heads = pytest.mark.parametrize("head", HEADS)
# Where our module keeps what the released one calls otherwise.
NAMES = {
    "projection.fc.": "fc.",
    "projection.hidden.": "mlp.layers.0.",
    "projection.norm.": "mlp.bns.0.",
    "projection.out.": "mlp.layers.1.",
    "pooling.": "gpool.",
}


def released(name: str) -> str:
    prefix = next(prefix for prefix in NAMES if name.startswith(prefix))
    return NAMES[prefix] + name.removeprefix(prefix)


def encoder(head: str = "residual-mlp", seed: int = 0) -> RegionEncoder:
    """Random, with a batch norm that has seen something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        projection = create_projection(head, FEATURES, SIZE, HIDDEN)
        found = RegionEncoder(projection, GPO(), FEATURES)
        if isinstance(projection, ClassWordsProjection):  # nothing released has it
            projection.classes_weight.normal_()
            return found.eval()
    state = region_state(seed)
    found.load_state_dict({name: state[released(name)] for name in found.state_dict()})
    return found.eval()


@given(sets=set_batches(dim=FEATURES, prefix=True))
@few
def test_region_encoder_follows_its_definition(sets):
    """fc(x) + mlp(x), GPO, unit norm: what a slow version of each image alone gives."""
    state = region_state()
    expected = torch.stack([naive.region(rows[0], state) for rows in sets.compacted()])
    found = encoder()(sets.features, lengths=sets.sizes)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@heads
@given(sets=set_batches(dim=FEATURES), extra=st.integers(0, 4), rubbish=st.sampled_from(RUBBISH))
@few
def test_region_encoder_ignores_padding(head, sets, extra, rubbish):
    """However much padding there is and whatever it holds, each image has the vector of its regions alone."""
    features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), rubbish)
    features = torch.nn.functional.pad(features, (0, 0, 0, extra), value=rubbish)
    mask = torch.nn.functional.pad(sets.mask, (0, extra), value=False)
    model = encoder(head)
    alone = torch.cat([model(rows) for rows in sets.compacted()])
    torch.testing.assert_close(model(features, mask=mask), alone, rtol=0, atol=2e-6)


def trained_once(model: RegionEncoder, features: Tensor, mask: Tensor) -> Tensor:
    model.train()
    vectors = model(features, mask=mask)
    vectors.square().mul(torch.arange(SIZE)).sum().backward()
    return vectors


@given(sets=set_batches(dim=FEATURES, batch=5), rubbish=st.sampled_from([0.0, -3.0, 1e4]))
@few
def test_batch_statistics_count_valid_regions_alone(sets, rubbish):
    """In training the batch norm sees each valid region once and no padding, and so do its running statistics."""
    rows = torch.cat([rows[0] for rows in sets.compacted()]).double()
    if len(rows) < 2:
        return
    state = region_state()
    hidden = naive.linear(rows, state, "mlp.layers.0.")
    mean, variance = hidden.mean(dim=0), hidden.var(dim=0, unbiased=False)
    of = naive.part(state, "mlp.bns.0.")
    inner = naive.normed(hidden, mean, variance, of["weight"], of["bias"]).clamp(min=0)
    projected = naive.linear(rows, state, "fc.") + naive.linear(inner, state, "mlp.layers.1.")
    images = projected.split(sets.sizes.tolist())
    expected = torch.stack([naive.unit(naive.gpo(image, naive.part(state, "gpool."))) for image in images])

    model = encoder()
    features = sets.features.masked_fill(~sets.mask.unsqueeze(-1), rubbish)
    # Two rows that are nearly alike make the norm divide by almost nothing: rounding is then all there is to see.
    if float(variance.min()) > 1e-3:
        torch.testing.assert_close(trained_once(model, features, sets.mask).double(), expected, rtol=0, atol=1e-4)
    else:
        trained_once(model, features, sets.mask)
    norm, share = model.projection.norm, model.projection.norm.momentum
    torch.testing.assert_close(
        norm.running_mean.double(), (1 - share) * of["running_mean"].double() + share * mean, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        norm.running_var.double(),
        (1 - share) * of["running_var"].double() + share * hidden.var(dim=0, unbiased=True),
        rtol=1e-4,
        atol=1e-5,
    )
    assert int(norm.num_batches_tracked) == 8


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_padding_does_not_reach_the_gradients(rubbish):
    """Every parameter gets the same gradient whatever the padding holds."""
    sets = make_sets(4, 6, FEATURES, seed=3)
    gradients = []
    for value in (0.5, rubbish):
        model = encoder()
        trained_once(model, sets.features.masked_fill(~sets.mask.unsqueeze(-1), value), sets.mask)
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, rtol=1e-5, atol=1e-6, msg=name)


@heads
def test_region_encoder_trains_every_parameter(head):
    """One backward pass reaches each parameter with a finite gradient that is not zero everywhere."""
    model, sets = encoder(head), make_sets(4, 6, FEATURES, seed=3)
    trained_once(model, sets.features, sets.mask)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@heads
def test_features_that_are_trained_get_gradients(head):
    """Features that come from another network get a gradient where they are valid, and zero where they are not."""
    model, sets = encoder(head), make_sets(4, 6, FEATURES, seed=3)
    features = sets.features.clone().requires_grad_()
    trained_once(model, features, sets.mask)
    assert (features.grad[sets.mask].abs().sum(dim=-1) > 0).all()
    assert features.grad[~sets.mask].abs().max() == 0


@heads
def test_elements_are_the_regions_before_pooling(head):
    """``elements`` gives the projection of each valid region, and zero instead of padding, whatever that holds."""
    model, sets = encoder(head), make_sets(4, 6, FEATURES, seed=3)
    projected, mask = model.elements(sets.features.masked_fill(~sets.mask.unsqueeze(-1), float("nan")), mask=sets.mask)
    assert torch.equal(mask, sets.mask)
    assert projected[~mask].abs().max() == 0
    alone = torch.cat([model.elements(rows)[0][0] for rows in sets.compacted()])
    torch.testing.assert_close(projected[mask], alone)


def test_region_encoder_is_deterministic():
    """Two passes over the same images give bit-identical vectors and gradients."""
    sets = make_sets(40, 12, FEATURES, seed=3)
    runs = []
    for _ in range(2):
        model = encoder()
        vectors = trained_once(model, sets.features, sets.mask)
        runs.append([vectors, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_lengths_mask_and_neither_agree():
    """Full lengths, a full mask and no word about it mean the same."""
    model, features = encoder(), torch.randn(3, 4, FEATURES)
    expected = model(features)
    torch.testing.assert_close(model(features, lengths=torch.tensor([4, 4, 4])), expected)
    torch.testing.assert_close(model(features, lengths=[4, 4, 4]), expected)
    torch.testing.assert_close(model(features, mask=torch.ones(3, 4, dtype=torch.bool)), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.bfloat16])
def test_features_of_other_precision_are_taken(dtype):
    """Stores hold float16 and numpy likes float64: both are computed in float32."""
    features = torch.randn(2, 3, FEATURES).to(dtype)
    found = encoder()(features)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, encoder()(features.float()))


def test_region_encoder_of_empty_batch():
    """An empty batch gives an empty batch."""
    assert encoder()(torch.empty(0, 3, FEATURES)).shape == (0, SIZE)


@pytest.mark.parametrize(
    ("features", "sets", "said"),
    [
        (torch.zeros(2, 3, 32, 32), {}, "look like pixels"),
        (torch.zeros(2, 3, FEATURES + 1), {}, rf"\(B, N, {FEATURES}\), got \(2, 3, {FEATURES + 1}\)"),
        (torch.zeros(3, FEATURES), {}, rf"got \(3, {FEATURES}\)"),
        (torch.zeros(2, 0, FEATURES), {}, "at least one element"),
        (torch.zeros(2, 3, FEATURES), {"lengths": torch.tensor([3, 0])}, r"lengths\[1\] is 0"),
        (torch.zeros(2, 3, FEATURES), {"lengths": torch.tensor([3, 4])}, r"lengths\[1\] is 4"),
        (torch.zeros(2, 3, FEATURES), {"lengths": torch.tensor([3])}, r"shape \(2,\)"),
        (torch.zeros(2, 3, FEATURES), {"lengths": torch.tensor([3.0, 2.0])}, "must be integers"),
        (torch.zeros(2, 3, FEATURES), {"mask": torch.zeros(2, 3, dtype=torch.bool)}, r"mask\[0\] is all False"),
        (torch.zeros(2, 3, FEATURES), {"mask": torch.ones(2, 4, dtype=torch.bool)}, "mask must have shape"),
        (torch.zeros(2, 3, FEATURES), {"mask": torch.ones(2, 3)}, "mask must be boolean"),
        (
            torch.zeros(2, 3, FEATURES),
            {"mask": torch.ones(2, 3, dtype=torch.bool), "lengths": torch.tensor([3, 3])},
            "not both",
        ),
    ],
)
def test_region_encoder_refuses_invalid_features(features, sets, said):
    """Pixels, another width, empty sets and lengths that lie each get a line of their own."""
    with pytest.raises(InputError, match=said) as caught:
        encoder()(features, **sets)
    assert "\n" not in str(caught.value)


def test_unknown_head_names_the_known_ones():
    """The projection is one of a closed set."""
    with pytest.raises(InputError, match="did you mean 'linear'"):
        create_projection("linar", FEATURES, SIZE, HIDDEN)


def test_new_weights_are_drawn_as_published():
    """fc starts Xavier-uniform with zero bias."""
    layer = RegionEncoder(create_projection("linear", 300, 200, 1), create_pooling("avg"), 300).projection.fc
    bound = (6 / 500) ** 0.5
    assert layer.bias.abs().max() == 0
    assert 0.98 * bound < layer.weight.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
