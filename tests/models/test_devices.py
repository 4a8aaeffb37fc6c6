"""Names of devices and threads, for torch and for ONNX Runtime."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import pytest
import torch
from tests.cli.search_support import saved_folder
from tests.support_models import picture

import vse
from vse._util.prefetch import available_cores
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.models import devices
from vse.models.devices import (
    CPU_PROVIDER,
    PROVIDERS,
    DeviceError,
    OnnxDevice,
    check_device,
    onnx_device,
    torch_device,
)
from vse.models.onnx import OnnxModel
from vse.models.storage import load_model


class Session:
    """A session that has every provider it was asked for."""

    def __init__(self, model, *, sess_options, providers, enable_fallback):
        self.asked = providers
        assert enable_fallback == 0  # else ONNX Runtime prints, and continues on the CPU

    def get_providers(self):
        return [name if isinstance(name, str) else name[0] for name in self.asked]


@pytest.fixture
def has(monkeypatch):
    """Let ONNX Runtime list providers; ``loads`` says whether sessions get them."""

    def install(*names, loads=True):
        listed = [*(PROVIDERS[name].provider for name in names), CPU_PROVIDER]
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
        if loads:
            monkeypatch.setattr(onnxruntime, "InferenceSession", Session)

    return install


@pytest.fixture(scope="module")
def export_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    export_onnx(load_model(saved_folder()), folder)
    return folder


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class TestNames:
    @pytest.mark.parametrize("name", ["auto", "cpu", "cuda:1", "mps", "tensorrt:0", "openvino", "coreml", "dml"])
    def test_known_device_names_pass(self, name):
        assert check_device(name) == name

    def test_unknown_device_lists_all(self):
        """The message has every name, and the closest one."""
        with pytest.raises(InputError) as caught:
            check_device("cudaa")
        assert all(repr(name) in str(caught.value) for name in devices.DEVICES)
        assert "did you mean 'cuda'" in str(caught.value)

    @pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cpu:0", "mps:1", "openvino:0", "cuda:-1", "cuda:1:2"])
    def test_device_numbers_are_checked(self, name):
        with pytest.raises(DeviceError, match="expected a number after one of cuda, tensorrt, dml"):
            check_device(name)


class TestOnnxProviders:
    def test_no_device_is_the_cpu_provider(self):
        for name in (None, "cpu"):
            assert onnx_device(name) == OnnxDevice("cpu", CPU_PROVIDER)

    @pytest.mark.parametrize(
        ("listed", "chosen"),
        [
            ((), "cpu"),
            (("openvino", "tensorrt"), "cpu"),
            (("tensorrt", "cuda"), "cuda"),
            (("dml", "coreml"), "coreml"),
            (("dml",), "dml"),
        ],
    )
    def test_auto_takes_the_first_listed_provider(self, has, listed, chosen):
        has(*listed)
        assert onnx_device("auto").name == chosen

    def test_auto_skips_a_provider_that_does_not_load(self, has, recwarn):
        """The package for GPUs on a machine without one: the CPU, without an error."""
        has("cuda", loads=False)
        assert onnx_device("auto").is_cpu

    @pytest.mark.parametrize("name", PROVIDERS)
    def test_provider_comes_first_and_the_cpu_last(self, has, name):
        has(name)
        device = onnx_device(name)
        session = device.session(b"", None)
        assert session.get_providers() == [PROVIDERS[name].provider, CPU_PROVIDER]
        assert not device.is_cpu

    def test_number_and_threads_become_provider_options(self, has):
        has("cuda", "openvino")
        assert onnx_device("cuda:1").options == {"device_id": "1"}
        assert onnx_device("openvino", threads=3).options == {"num_of_threads": "3"}

    @pytest.mark.parametrize(("name", "wanted"), PROVIDERS.items())
    def test_missing_provider_names_its_package(self, has, name, wanted):
        has()
        with pytest.raises(DeviceError) as caught:
            onnx_device(name)
        assert str(caught.value) == (
            f"device {name!r}: this ONNX Runtime has no {wanted.provider} (it has {CPU_PROVIDER}); install "
            f"{wanted.package}, or use --device cpu"
        )

    def test_silent_fallback_is_an_error(self, has, recwarn):
        """ONNX Runtime lists the provider, but creates a session without it; it does so where CUDA is not installed."""
        has("cuda", loads=False)
        with pytest.raises(DeviceError, match=r"device 'cuda': ONNX Runtime cannot load its CUDAExecutionProvider"):
            onnx_device("cuda")

    def test_error_of_a_provider_is_one_line(self, has, monkeypatch):
        def fail(*_, **__):
            raise RuntimeError("pybind_state.cc:729\nPlease install TensorRT libraries")

        has("tensorrt")
        monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
        with pytest.raises(DeviceError, match="needs an NVIDIA GPU and TensorRT; install") as caught:
            onnx_device("tensorrt")
        assert "\n" not in str(caught.value)

    def test_export_refuses_mps(self, export_folder):
        with pytest.raises(DeviceError, match="'mps': a device of torch, and exports run in ONNX Runtime"):
            vse.load(export_folder, device="mps")


class TestTorchDevices:
    @pytest.mark.parametrize(
        ("cuda", "mps", "chosen"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
    )
    def test_auto_prefers_cuda_then_mps(self, monkeypatch, cuda, mps, chosen):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        assert torch_device("auto") == torch.device(chosen)
        assert torch_device(None) == torch.device("cpu")

    @pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps"])
    def test_missing_torch_device_is_one_line(self, monkeypatch, name):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        with pytest.raises(DeviceError, match=rf"device '{name}': torch .* finds no .*use --device cpu") as caught:
            vse.load(saved_folder(), device=name)
        assert "\n" not in str(caught.value)

    def test_gpu_number_beyond_the_last(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert torch_device("cuda:1") == torch.device("cuda", 1)
        with pytest.raises(DeviceError, match="device 'cuda:2': torch finds 2 CUDA GPUs"):
            torch_device("cuda:2")

    def test_torch_model_refuses_a_provider(self):
        with pytest.raises(DeviceError, match="'openvino': a provider of ONNX Runtime, and this model runs in torch"):
            vse.load(saved_folder(), device="openvino")


class TestLoadedModels:
    @pytest.mark.parametrize("device", ["cpu", "auto"])
    def test_both_runtimes_take_device_and_threads(self, monkeypatch, export_folder, torch_threads, device):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        images = [picture(seed) for seed in range(2)]
        found = []
        for folder in (saved_folder(), export_folder):
            model = vse.load(folder, device=device, threads=1)
            assert str(model.device) == "cpu"
            found.append(model.encode_images(images))
        assert torch.get_num_threads() == 1
        np.testing.assert_allclose(found[0], found[1], atol=1e-4)

    @pytest.mark.parametrize("threads", [0, -1, 1.5])
    def test_bad_threads_are_refused_by_both_runtimes(self, export_folder, threads):
        for folder in (saved_folder(), export_folder):
            with pytest.raises(InputError, match="threads must be a whole number from 1 up"):
                vse.load(folder, threads=threads)

    def test_default_threads_follow_the_affinity(self, monkeypatch, export_folder):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
        assert available_cores() == 3
        with OnnxModel.load(export_folder).parallel_calls(32) as calls:
            assert calls.threads == 3

    def test_other_providers_get_whole_batches_from_one_thread(self, monkeypatch, export_folder):
        """One session serves queries and batches; here it runs on the CPU in place of a GPU."""
        monkeypatch.setattr(devices, "_loaded", lambda *_: OnnxDevice("cuda", "CUDAExecutionProvider"))
        on_cpu = OnnxDevice()
        monkeypatch.setattr(OnnxDevice, "session", lambda self, *given: _create(on_cpu, *given))
        model = OnnxModel.load(export_folder, device="cuda")
        with model.parallel_calls(32) as calls:
            assert (calls.threads, calls.images) == (1, 32)
        model.encode_texts(["a dog"])
        model.encode_texts(["a dog"] * 9)
        assert "_query_session" not in vars(model)

    def test_session_of_a_model_without_its_provider_is_an_error(self, monkeypatch, export_folder, recwarn):
        """The provider loaded, but not for this session: no message about a broken export."""
        monkeypatch.setattr(devices, "_loaded", lambda *_: OnnxDevice("cuda", "CUDAExecutionProvider"))
        model = vse.load(export_folder, device="cuda")
        with pytest.raises(DeviceError, match="cannot load its CUDAExecutionProvider"):
            model.encode_texts(["a dog"])

    def test_failure_of_a_provider_does_not_blame_the_export(self, monkeypatch, export_folder):
        def fail(*_):
            raise RuntimeError("CUDA failure 2: out of memory\nfile=cuda_call.cc")

        monkeypatch.setattr(devices, "_loaded", lambda *_: OnnxDevice("cuda", "CUDAExecutionProvider"))
        monkeypatch.setattr(OnnxDevice, "session", fail)
        with pytest.raises(DeviceError, match=r"'cuda': .*text.onnx cannot be loaded there \(CUDA failure 2.*cpu"):
            vse.load(export_folder, device="cuda").encode_texts(["a dog"])


def _create(device, model, options):
    return onnxruntime.InferenceSession(model, sess_options=options, providers=[device.provider])


class TestBf16:
    @pytest.mark.parametrize(
        ("text", "asked", "known"),
        [
            ("flags\t\t: fpu avx2 avx512f amx_bf16 amx_tile", False, True),
            ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", False, False),
            ("Features\t: fp asimd bf16", False, True),
            ("model name: something", False, None),
            ("flags\t\t: fpu", True, True),
            (None, False, None),
        ],
    )
    def test_note_on_a_processor_that_emulates_bf16(self, monkeypatch, tmp_path, text, asked, known):
        """torch or the flags of Linux know the instructions; a GPU and an unknown processor get no note."""
        monkeypatch.setattr(devices, "CPU_INFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: asked, raising=False)
        monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported", raising=False)
        if text is not None:
            (tmp_path / "cpuinfo").write_text(text)
        assert devices.cpu_computes_bf16() is known
        note = devices.slow_bf16(torch.device("cpu"))
        assert (note is not None) == (known is False)
        assert devices.slow_bf16(torch.device("meta")) is None
