from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToProver(_message.Message):
    __slots__ = ("configure", "offer", "cancel", "grant", "drop", "preload", "shutdown", "shrink_pool")
    CONFIGURE_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    SHRINK_POOL_FIELD_NUMBER: _ClassVar[int]
    configure: Configure
    offer: Offer
    cancel: Cancel
    grant: Grant
    drop: Drop
    preload: Preload
    shutdown: Shutdown
    shrink_pool: ShrinkPool
    def __init__(self, configure: _Optional[_Union[Configure, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., drop: _Optional[_Union[Drop, _Mapping]] = ..., preload: _Optional[_Union[Preload, _Mapping]] = ..., shutdown: _Optional[_Union[Shutdown, _Mapping]] = ..., shrink_pool: _Optional[_Union[ShrinkPool, _Mapping]] = ...) -> None: ...

class FromProver(_message.Message):
    __slots__ = ("ready", "event", "done", "failed", "grant_request", "grant_return", "heartbeat", "circuit", "fatal", "log")
    READY_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    GRANT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    GRANT_RETURN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    FATAL_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    ready: Ready
    event: PartitionEvent
    done: PartitionDone
    failed: PartitionFailed
    grant_request: GrantRequest
    grant_return: GrantReturn
    heartbeat: Heartbeat
    circuit: CircuitState
    fatal: Fatal
    log: LogRecord
    def __init__(self, ready: _Optional[_Union[Ready, _Mapping]] = ..., event: _Optional[_Union[PartitionEvent, _Mapping]] = ..., done: _Optional[_Union[PartitionDone, _Mapping]] = ..., failed: _Optional[_Union[PartitionFailed, _Mapping]] = ..., grant_request: _Optional[_Union[GrantRequest, _Mapping]] = ..., grant_return: _Optional[_Union[GrantReturn, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., circuit: _Optional[_Union[CircuitState, _Mapping]] = ..., fatal: _Optional[_Union[Fatal, _Mapping]] = ..., log: _Optional[_Union[LogRecord, _Mapping]] = ...) -> None: ...

class Configure(_message.Message):
    __slots__ = ("backend", "state_dir", "threads", "max_parallel_synthesis", "ready_target", "wipe", "slab_bytes", "prewarm", "fault", "launch_set", "launch_wait_s", "vram_bytes", "no_tables")
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_SYNTHESIS_FIELD_NUMBER: _ClassVar[int]
    READY_TARGET_FIELD_NUMBER: _ClassVar[int]
    WIPE_FIELD_NUMBER: _ClassVar[int]
    SLAB_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREWARM_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SET_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    VRAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    NO_TABLES_FIELD_NUMBER: _ClassVar[int]
    backend: str
    state_dir: str
    threads: int
    max_parallel_synthesis: int
    ready_target: int
    wipe: bool
    slab_bytes: int
    prewarm: bool
    fault: str
    launch_set: int
    launch_wait_s: float
    vram_bytes: int
    no_tables: bool
    def __init__(self, backend: _Optional[str] = ..., state_dir: _Optional[str] = ..., threads: _Optional[int] = ..., max_parallel_synthesis: _Optional[int] = ..., ready_target: _Optional[int] = ..., wipe: _Optional[bool] = ..., slab_bytes: _Optional[int] = ..., prewarm: _Optional[bool] = ..., fault: _Optional[str] = ..., launch_set: _Optional[int] = ..., launch_wait_s: _Optional[float] = ..., vram_bytes: _Optional[int] = ..., no_tables: _Optional[bool] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("partition_id", "circuit", "circuit_digest", "spool_path", "priority", "sequence", "attempt")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPOOL_PATH_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    partition_id: str
    circuit: str
    circuit_digest: str
    spool_path: str
    priority: int
    sequence: int
    attempt: int
    def __init__(self, partition_id: _Optional[str] = ..., circuit: _Optional[str] = ..., circuit_digest: _Optional[str] = ..., spool_path: _Optional[str] = ..., priority: _Optional[int] = ..., sequence: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("partition_id",)
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    partition_id: str
    def __init__(self, partition_id: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("request_id", "bytes", "error_code", "error_message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    bytes: int
    error_code: str
    error_message: str
    def __init__(self, request_id: _Optional[int] = ..., bytes: _Optional[int] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class Drop(_message.Message):
    __slots__ = ("circuit", "digest")
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    circuit: str
    digest: str
    def __init__(self, circuit: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class Preload(_message.Message):
    __slots__ = ("circuit", "digest")
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    circuit: str
    digest: str
    def __init__(self, circuit: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class Shutdown(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShrinkPool(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("pid", "backend", "device", "device_name", "vram_total_bytes", "selftest_s")
    PID_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    VRAM_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SELFTEST_S_FIELD_NUMBER: _ClassVar[int]
    pid: int
    backend: str
    device: str
    device_name: str
    vram_total_bytes: int
    selftest_s: float
    def __init__(self, pid: _Optional[int] = ..., backend: _Optional[str] = ..., device: _Optional[str] = ..., device_name: _Optional[str] = ..., vram_total_bytes: _Optional[int] = ..., selftest_s: _Optional[float] = ...) -> None: ...

class PartitionEvent(_message.Message):
    __slots__ = ("partition_id", "stage")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    partition_id: str
    stage: str
    def __init__(self, partition_id: _Optional[str] = ..., stage: _Optional[str] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("name", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    seconds: float
    def __init__(self, name: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class PartitionDone(_message.Message):
    __slots__ = ("partition_id", "proof", "publics", "phases", "h2d_bytes", "key_digest", "attempts_inside", "launch_set")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    PUBLICS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    H2D_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_INSIDE_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SET_FIELD_NUMBER: _ClassVar[int]
    partition_id: str
    proof: bytes
    publics: _containers.RepeatedScalarFieldContainer[bytes]
    phases: _containers.RepeatedCompositeFieldContainer[Phase]
    h2d_bytes: int
    key_digest: str
    attempts_inside: int
    launch_set: int
    def __init__(self, partition_id: _Optional[str] = ..., proof: _Optional[bytes] = ..., publics: _Optional[_Iterable[bytes]] = ..., phases: _Optional[_Iterable[_Union[Phase, _Mapping]]] = ..., h2d_bytes: _Optional[int] = ..., key_digest: _Optional[str] = ..., attempts_inside: _Optional[int] = ..., launch_set: _Optional[int] = ...) -> None: ...

class PartitionFailed(_message.Message):
    __slots__ = ("partition_id", "error_code", "error_message", "stage", "retryable")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    partition_id: str
    error_code: str
    error_message: str
    stage: str
    retryable: bool
    def __init__(self, partition_id: _Optional[str] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., stage: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class GrantRequest(_message.Message):
    __slots__ = ("request_id", "bytes", "what", "now")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    bytes: int
    what: str
    now: bool
    def __init__(self, request_id: _Optional[int] = ..., bytes: _Optional[int] = ..., what: _Optional[str] = ..., now: _Optional[bool] = ...) -> None: ...

class GrantReturn(_message.Message):
    __slots__ = ("bytes", "what")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    what: str
    def __init__(self, bytes: _Optional[int] = ..., what: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("pinned_slab_bytes", "pinned_leased_bytes", "pinned_free_bytes", "slabs_made", "slabs_made_on_job_path", "h2d_bytes_total", "vram_used_bytes", "synthesising", "ready", "device_busy", "resident_key_bytes", "vram_free_bytes", "pinned_lost_bytes", "device_busy_s")
    PINNED_SLAB_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_LEASED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SLABS_MADE_FIELD_NUMBER: _ClassVar[int]
    SLABS_MADE_ON_JOB_PATH_FIELD_NUMBER: _ClassVar[int]
    H2D_BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    VRAM_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SYNTHESISING_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_BUSY_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_KEY_BYTES_FIELD_NUMBER: _ClassVar[int]
    VRAM_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_LOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_BUSY_S_FIELD_NUMBER: _ClassVar[int]
    pinned_slab_bytes: int
    pinned_leased_bytes: int
    pinned_free_bytes: int
    slabs_made: int
    slabs_made_on_job_path: int
    h2d_bytes_total: int
    vram_used_bytes: int
    synthesising: int
    ready: int
    device_busy: bool
    resident_key_bytes: int
    vram_free_bytes: int
    pinned_lost_bytes: int
    device_busy_s: float
    def __init__(self, pinned_slab_bytes: _Optional[int] = ..., pinned_leased_bytes: _Optional[int] = ..., pinned_free_bytes: _Optional[int] = ..., slabs_made: _Optional[int] = ..., slabs_made_on_job_path: _Optional[int] = ..., h2d_bytes_total: _Optional[int] = ..., vram_used_bytes: _Optional[int] = ..., synthesising: _Optional[int] = ..., ready: _Optional[int] = ..., device_busy: _Optional[bool] = ..., resident_key_bytes: _Optional[int] = ..., vram_free_bytes: _Optional[int] = ..., pinned_lost_bytes: _Optional[int] = ..., device_busy_s: _Optional[float] = ...) -> None: ...

class CircuitState(_message.Message):
    __slots__ = ("circuit", "loaded", "bytes", "load_s", "error_code", "error_message", "was_loaded", "digest")
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOAD_S_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WAS_LOADED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    circuit: str
    loaded: bool
    bytes: int
    load_s: float
    error_code: str
    error_message: str
    was_loaded: bool
    digest: str
    def __init__(self, circuit: _Optional[str] = ..., loaded: _Optional[bool] = ..., bytes: _Optional[int] = ..., load_s: _Optional[float] = ..., error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., was_loaded: _Optional[bool] = ..., digest: _Optional[str] = ...) -> None: ...

class Fatal(_message.Message):
    __slots__ = ("error_code", "error_message", "stage", "device")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    error_code: str
    error_message: str
    stage: str
    device: str
    def __init__(self, error_code: _Optional[str] = ..., error_message: _Optional[str] = ..., stage: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("level", "event", "fields", "numbers")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class NumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    level: str
    event: str
    fields: _containers.ScalarMap[str, str]
    numbers: _containers.ScalarMap[str, float]
    def __init__(self, level: _Optional[str] = ..., event: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ..., numbers: _Optional[_Mapping[str, float]] = ...) -> None: ...
