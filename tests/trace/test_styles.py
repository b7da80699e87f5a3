"""The steps of each attention style, recomputed by loops from the steps before them."""

import math

import numpy as np

PATH = "decoder.0.self"
HEADS, SIZE = 4, 4


def same(found, expected):
    np.testing.assert_allclose(found, np.array(expected), rtol=0, atol=1e-12)


def names_below(trace, path):
    return [step.name.rpartition(".")[2] for step in trace if step.part == path]


def products(trace, head, kind="head"):
    q, k = (trace[f"{PATH}.{kind}.{head}.{name}"] for name in ("queries", "keys"))
    return [[sum(a * b for a, b in zip(ask, key, strict=True)) / math.sqrt(SIZE) for key in k] for ask in q]


def softmax(scores):
    powers = [[math.exp(score) for score in row] for row in scores]
    return [[power / sum(row) for power in row] for row in powers]


def read(trace, head):
    weights, values = (trace[f"{PATH}.head.{head}.{name}"] for name in ("weights", "values"))
    return [[sum(w * values[j][c] for j, w in enumerate(row)) for c in range(values.shape[1])] for row in weights]


def test_talking_heads_are_traced_before_and_after_mixing(traced):
    subject, trace = traced(attention={"name": "talking-heads", "start": "random"})
    style = subject.attention("decoder").style
    before, behind = (mixing[0].tolist() for mixing in (style.before, style.after))
    plain = [products(trace, head) for head in range(HEADS)]
    shares = [trace[f"{PATH}.head.{head}.unmixed-weights"] for head in range(HEADS)]
    for head in range(HEADS):
        path = f"{PATH}.head.{head}"
        assert names_below(trace, path) == [
            "queries",
            "keys",
            "values",
            "scores",
            "mask",
            "filled",
            "unmixed-weights",
            "weights",
            "output",
        ]
        same(trace[f"{path}.scores"], sum(before[f][head] * np.array(plain[f]) for f in range(4)))
        same(shares[head], softmax(trace[f"{path}.filled"]))
        same(trace[f"{path}.weights"], sum(behind[f][head] * shares[f] for f in range(4)))
        same(trace[f"{path}.output"], read(trace, head))
    steps = {step.name: step for step in trace}
    assert "P_l" in steps[f"{PATH}.head.0.scores"].formula
    assert steps[f"{PATH}.head.0.scores"].example == ""
    example = steps[f"{PATH}.head.0.unmixed-weights"].example
    assert example.startswith("row “t2”, column “t0”: e^{")
    assert example.endswith(f" = {shares[0][2, 0]:.3f}")


def test_maps_of_a_differential_head_precede_the_head(traced):
    subject, trace = traced(attention="differential")
    style = subject.attention("decoder").style
    share, gain = float(style.lambda_()[0].detach()), style.gain[0].tolist()
    joined = []
    for head in range(HEADS):
        path = f"{PATH}.map.{head}"
        assert names_below(trace, path) == ["queries", "keys", "scores", "mask", "filled", "unmixed-weights"]
        same(trace[f"{path}.scores"], products(trace, head, "map"))
        same(trace[f"{path}.unmixed-weights"], softmax(trace[f"{path}.filled"]))
    for head in range(HEADS // 2):
        path = f"{PATH}.head.{head}"
        assert names_below(trace, path) == ["values", "weights", "output", "finished"]
        first, second = (trace[f"{PATH}.map.{2 * head + offset}.unmixed-weights"] for offset in (0, 1))
        same(trace[f"{path}.weights"], first - share * second)
        same(trace[f"{path}.output"], read(trace, head))
        finished = [
            [
                0.8 * g * value / math.sqrt(sum(c * c for c in row) / len(row) + 1e-5)
                for g, value in zip(gain, row, strict=True)
            ]
            for row in trace[f"{path}.output"]
        ]
        same(trace[f"{path}.finished"], finished)
        joined.append(trace[f"{path}.finished"])
    assert f"{PATH}.head.2.weights" not in {step.name for step in trace}
    same(trace[f"{PATH}.concatenation"], np.concatenate(joined, axis=-1))


def test_normalised_queries_and_keys_are_traced_beside_the_plain_ones(traced):
    subject, trace = traced(attention="qk-norm")
    gain = subject.attention("decoder").style.gain[0].tolist()
    for head in range(HEADS):
        path = f"{PATH}.head.{head}"
        for name, factor in (("queries", gain[head]), ("keys", 1.0)):
            plain = trace[f"{path}.plain-{name}"]
            expected = [[factor * c / math.sqrt(sum(v * v for v in row)) for c in row] for row in plain]
            same(trace[f"{path}.{name}"], expected)
        q, k = trace[f"{path}.queries"], trace[f"{path}.keys"]
        same(trace[f"{path}.scores"], [[float(a @ b) for b in k] for a in q])


def test_sigmoid_weights_are_traced_with_the_number_of_unmasked_keys(traced):
    _, trace = traced(attention="sigmoid")
    path = f"{PATH}.head.1"
    scores, weights = trace[f"{path}.scores"], trace[f"{path}.weights"]
    for i in range(3):
        for j in range(3):
            expected = 1 / (1 + (i + 1) * math.exp(-scores[i, j])) if j <= i else 0.0
            assert math.isclose(weights[i, j], expected, abs_tol=1e-12)


def test_linear_attention_is_traced_as_normalised_products_of_features(traced):
    _, trace = traced(attention="linear")
    path = f"{PATH}.head.1"

    def feature(row):
        return [value + 1 if value > 0 else math.exp(value) for value in row]

    q, k = ([feature(row) for row in trace[f"{path}.{name}"]] for name in ("queries", "keys"))
    same(trace[f"{path}.scores"], [[sum(a * b for a, b in zip(x, y, strict=True)) for y in k] for x in q])
    scores, weights = trace[f"{path}.scores"], trace[f"{path}.weights"]
    for i in range(3):
        same(weights[i], [s / sum(scores[i, : i + 1]) if j <= i else 0.0 for j, s in enumerate(scores[i])])
    steps = {step.name: step for step in trace}
    assert steps[f"{path}.scores"].formula.startswith("A = S / Σ_j S, S = φ(Q) φ(K)^T")
