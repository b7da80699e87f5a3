"""Recognition of out-of-memory errors."""

import errno

import pytest
import torch

from headtohead.errors import is_out_of_memory, machine_limit

MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4398046511104 bytes. Error code 12"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
]
OTHER = [
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
    ValueError("the argument 'out of memory' is unknown"),
    OSError(errno.ENOSPC, "No space left on device"),
]


@pytest.mark.parametrize("error", [*MEMORY, *OTHER])
def test_exactly_the_out_of_memory_errors_are_recognised(error: Exception) -> None:
    assert is_out_of_memory(error) == (error in MEMORY)
    assert machine_limit(error) == ("free memory or raise ulimit -v" if error in MEMORY else None)


def test_a_real_out_of_memory_error_on_a_cpu_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)


def test_a_tensor_whose_bytes_cannot_be_counted_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**40, 2**40, device="meta")
    assert is_out_of_memory(caught.value)
