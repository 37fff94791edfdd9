from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToIntake(_message.Message):
    __slots__ = ("configure", "calculate")
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    CALCULATE_FIELD_NUMBER: _ClassVar[int]
    configure: Configure
    calculate: Calculate
    def __init__(self, configure: _Optional[_Union[Configure, _Mapping]] = ..., calculate: _Optional[_Union[Calculate, _Mapping]] = ...) -> None: ...

class FromIntake(_message.Message):
    __slots__ = ("calculated", "failed")
    CALCULATED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    calculated: Calculated
    failed: Failed
    def __init__(self, calculated: _Optional[_Union[Calculated, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class Configure(_message.Message):
    __slots__ = ("state_dir", "memory_bytes", "fuel", "max_input_bytes")
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FUEL_FIELD_NUMBER: _ClassVar[int]
    MAX_INPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    state_dir: str
    memory_bytes: int
    fuel: int
    max_input_bytes: int
    def __init__(self, state_dir: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., fuel: _Optional[int] = ..., max_input_bytes: _Optional[int] = ...) -> None: ...

class Calculate(_message.Message):
    __slots__ = ("circuit", "calculator_digest", "curve", "n_wires", "input_path", "output_path")
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    CALCULATOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CURVE_FIELD_NUMBER: _ClassVar[int]
    N_WIRES_FIELD_NUMBER: _ClassVar[int]
    INPUT_PATH_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PATH_FIELD_NUMBER: _ClassVar[int]
    circuit: str
    calculator_digest: str
    curve: str
    n_wires: int
    input_path: str
    output_path: str
    def __init__(self, circuit: _Optional[str] = ..., calculator_digest: _Optional[str] = ..., curve: _Optional[str] = ..., n_wires: _Optional[int] = ..., input_path: _Optional[str] = ..., output_path: _Optional[str] = ...) -> None: ...

class Calculated(_message.Message):
    __slots__ = ("compile_s", "seconds")
    COMPILE_S_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    compile_s: float
    seconds: float
    def __init__(self, compile_s: _Optional[float] = ..., seconds: _Optional[float] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    error_message: str
    def __init__(self, error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...
