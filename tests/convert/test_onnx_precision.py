"""Half precision, on graphs small enough to look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from vse.convert.onnx_precision import halve_weights


def write_lookup(path: Path, *, shared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Write rows of a table times a matrix; with ``shared`` the sum of the whole table is another output."""
    generator = np.random.default_rng(0)
    table, matrix = (generator.standard_normal((64, 32)).astype(np.float32) for _ in range(2))
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(matrix.T.copy(), "matrix")]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "matrix"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 64])]
    if shared:
        nodes.append(helper.make_node("ReduceSum", ["table"], ["sum"], keepdims=0))
        outputs.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, []))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [None])
    graph = helper.make_graph(nodes, "lookup", [ids], outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return table, matrix


def casts_of(path: Path) -> set[str]:
    return {node.input[0] for node in onnx.load(path).graph.node if node.op_type == "Cast"}


def test_only_looked_up_rows_of_a_half_table_are_widened(tmp_path):
    """The table stays in half precision at run time; matrices are widened when the model is loaded."""
    table, matrix = write_lookup(tmp_path / "m.onnx", shared=False)
    halve_weights(tmp_path / "m.onnx")
    assert casts_of(tmp_path / "m.onnx") == {"rows.half", "matrix.half"}
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    found = session.run(None, {"ids": np.array([3, 60])})[0]
    half_table, half_matrix = (each.astype(np.float16).astype(np.float32) for each in (table, matrix))
    np.testing.assert_allclose(found, half_table[[3, 60]] @ half_matrix.T, rtol=1e-5, atol=1e-5)


def test_half_table_that_is_also_read_whole_is_widened_once(tmp_path):
    table, _ = write_lookup(tmp_path / "m.onnx", shared=True)
    halve_weights(tmp_path / "m.onnx")
    assert casts_of(tmp_path / "m.onnx") == {"table.half", "matrix.half"}
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    total = session.run(["sum"], {"ids": np.array([0])})[0]
    np.testing.assert_allclose(total, table.astype(np.float16).astype(np.float32).sum(), rtol=1e-4)
