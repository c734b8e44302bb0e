"""Arrays in the format of safetensors, written into any file; their library reads them."""

import json
from typing import IO

import numpy as np

# NumPy's names and those of the format, in the order in which its library lays arrays out:
# the wide ones first, so that each begins at a multiple of its width
TYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32", "uint32": "U32",
    "int32": "I32", "bfloat16": "BF16", "float16": "F16", "uint16": "U16", "int16": "I16",
    "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def write_tensors(file: IO[bytes], arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write arrays by name, and texts by name, without a copy of the arrays.

    The length of the head in eight bytes, the head as JSON, then the arrays' own bytes.

    Example:
        >>> import io
        >>> import numpy as np
        >>> from safetensors.numpy import load
        >>> from posterax.files.tensors import write_tensors
        >>> file = io.BytesIO()
        >>> write_tensors(file, {"w": np.ones(3)}, {"by": "posterax"})
        >>> load(file.getvalue())
        {'w': array([1., 1., 1.])}
    """
    order = list(TYPES)
    for name, array in arrays.items():
        if array.dtype.name not in TYPES:
            raise TypeError(f"{name}: arrays of {array.dtype} cannot be saved, only of numbers")
    names = sorted(arrays, key=lambda name: (order.index(arrays[name].dtype.name), name))
    head: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name in names:
        array, start, end = arrays[name], end, end + arrays[name].nbytes
        kind = TYPES[array.dtype.name]
        head[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        little = arrays[name].dtype.newbyteorder("<")
        array = np.asarray(arrays[name], little, order="C")  # itself, nearly always
        file.write(array.reshape(-1).view(np.uint8).data)
